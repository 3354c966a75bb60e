#include "trial.h"

#ifdef SLIPWAY_SANITIZE

namespace slipway::fuzz {

void keep_last_words() {}

}  // namespace slipway::fuzz

extern "C" const char* __asan_default_options();
extern "C" const char* __ubsan_default_options();

// Numbers of a damaged file may ask for any amount of memory, and are to be refused it.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=512:hard_rss_limit_mb=3000:handle_abort=1:"
         "symbolize=0:"
         "detect_leaks=1:detect_stack_use_after_return=0:log_to_syslog=0";
}

extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() {
  return "print_stacktrace=1:symbolize=0";
}

#else

#include <execinfo.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <initializer_list>

namespace slipway::fuzz {
namespace {

constexpr rlim_t kMostMemory = rlim_t{6} << 30;

[[noreturn]] void say(int signal, siginfo_t* info, void* /*context*/) {
  char text[80];
  const int length = std::snprintf(text, sizeof text, "signal %d at %p\n", signal, info->si_addr);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  void* calls[40];
  ::backtrace_symbols_fd(calls, ::backtrace(calls, 40), STDERR_FILENO);
  ::_exit(99);
}

}  // namespace

void keep_last_words() {
  static unsigned char stack[64 * 1024];
  void* loaded[1];
  ::backtrace(loaded, 1);  // loads what it needs, while memory can be had
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  ::sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_sigaction = say;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    ::sigaction(signal, &action, nullptr);
  }
  const rlimit limit = {kMostMemory, kMostMemory};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace slipway::fuzz

#endif
