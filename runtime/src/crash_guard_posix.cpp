#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "crash_guard.h"

namespace slipway {
namespace {

// In the order of Ending.
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGXCPU};
static_assert(std::size(kSignals) == kEndings);

struct Prepared {
  AllLastWords words;
  std::string path;
  std::string temporary;
};

Prepared& prepared() {
  static Prepared instance;
  return instance;
}

struct sigaction g_before[std::size(kSignals)];

// A crash may be an overflow of the stack, so the handler has one of its own.
alignas(16) char g_stack[64 * 1024];

void write_text(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written <= 0) {
      return;
    }
    done += static_cast<std::size_t>(written);
  }
}

void handle(int signal_number) {
  const Prepared& crash = prepared();
  const LastWords* words = &crash.words[0];
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    words = kSignals[i] == signal_number ? &crash.words[i] : words;
  }
  write_text(STDERR_FILENO, words->text);
  if (!words->json.empty() && crash.path.empty()) {
    write_text(STDOUT_FILENO, words->json);
  } else if (!words->json.empty()) {
    const int descriptor =
        ::open(crash.temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor >= 0) {
      write_text(descriptor, words->json);
      ::fsync(descriptor);
      ::close(descriptor);
      ::rename(crash.temporary.c_str(), crash.path.c_str());
    }
  }
  ::_exit(words->code);
}

}  // namespace

CrashGuard::CrashGuard(AllLastWords words, const std::string& json_path) {
  prepared() = {std::move(words), json_path, json_path + ".crash"};
  stack_t stack = {};
  stack.ss_sp = g_stack;
  stack.ss_size = sizeof(g_stack);
  ::sigaltstack(&stack, nullptr);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, &g_before[i]);
  }
}

CrashGuard::~CrashGuard() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &g_before[i], nullptr);
  }
}

}  // namespace slipway
