#include "trial.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <utility>

#include "exercise.h"

#ifdef SLIPWAY_SANITIZE
#include <sanitizer/lsan_interface.h>

constexpr std::size_t kLeakEvery = 500;

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
#endif

namespace slipway::fuzz {
namespace {

// What the trying process writes and the watching one reads.
struct Shared {
  std::atomic<std::size_t> at;
  struct Answer {
    Outcome outcome;
    std::uint8_t code;
  };
  Answer* answers;  // behind it
};

// Enough for every program of the zoo, and few enough to end in a fraction of the processor time that is
// allowed: a loop without end is refused for its rounds, and one of the engine's own is found by the time.
constexpr unsigned kMostJumps = 10000;

void on_abort(const char* message) {
  std::fprintf(stderr, "the engine gave up: %s\n", message);
  std::abort();
}

Shared::Answer answer_of(const Status& status, const Trace& trace) {
  if (status.ok()) {
    return {trace.executed != 0 ? Outcome::kRan : Outcome::kLoaded, 0};
  }
  return {status.message().empty() ? Outcome::kWordless : Outcome::kRefused,
          static_cast<std::uint8_t>(status.code())};
}

Shared::Answer attempt(Engine& engine, const std::string& path) {
  Trace trace;
#ifndef SLIPWAY_SANITIZE
  fill_memory_with(0x11);
#endif
  const Status status = exercise(engine, path, &trace);
  const Shared::Answer answer = answer_of(status, trace);
#ifndef SLIPWAY_SANITIZE
  // Memory with another filling: the answer is the same, unless somebody read what nobody wrote.
  Trace second;
  fill_memory_with(0xEE);
  const Status again = exercise(engine, path, &second);
  if (again.ok() != status.ok() || (status.ok() && second.digest != trace.digest)) {
    std::fprintf(stderr, "first %s, then %s\n", status.ok() ? "an answer" : status.message().c_str(),
                 again.ok() ? "another answer" : again.message().c_str());
    return {Outcome::kDiffers, 0};
  }
#endif
  return answer;
}

#ifndef SLIPWAY_SANITIZE
constexpr rlim_t kMostMemory = rlim_t{6} << 30;

[[noreturn]] void say(int signal, siginfo_t* info, void* /*context*/) {
  char text[80];
  const int length = std::snprintf(text, sizeof text, "signal %d at %p\n", signal, info->si_addr);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  void* calls[40];
  ::backtrace_symbols_fd(calls, ::backtrace(calls, 40), STDERR_FILENO);
  ::_exit(99);
}
#endif

std::unique_ptr<Engine> make_engine_for_trials() {
  std::unique_ptr<Engine> engine = make_engine(on_abort);
  EngineOptions options;
  options.max_jumps = kMostJumps;
  return engine->configure(options).ok() ? std::move(engine) : nullptr;
}

[[noreturn]] void work(const std::vector<std::uint8_t>& file, std::size_t first, std::size_t count,
                       const Change& change, Shared* shared) {
  keep_last_words();
  std::vector<std::uint8_t> copy = file;
  MemoryFile stored;
  // One engine for many: what a program leaves behind in it must not harm the next.
  std::unique_ptr<Engine> engine = make_engine_for_trials();
  stored.write(copy.data(), copy.size());
  const int target = ::open(stored.path().c_str(), O_RDWR | O_CLOEXEC);
  for (std::size_t i = first; i < count; ++i) {
    shared->at = i;
    const PatchedRange range = change(i, copy.data());
    const auto file_offset = static_cast<off_t>(range.offset);
    bool good = ::pwrite(target, copy.data() + range.offset, range.size, file_offset) >= 0;
    if (::lseek(STDERR_FILENO, 0, SEEK_CUR) > 0) {
      good = ::ftruncate(STDERR_FILENO, 0) == 0 && ::lseek(STDERR_FILENO, 0, SEEK_SET) == 0 && good;
    }
    shared->answers[i] = good ? attempt(*engine, stored.path()) : Shared::Answer{Outcome::kNone, 0};
    if (shared->answers[i].outcome == Outcome::kDiffers) {
      shared->at = i + 1;
      ::_exit(0);  // the watching process takes the words over
    }
    std::memcpy(copy.data() + range.offset, file.data() + range.offset, range.size);
    good = ::pwrite(target, copy.data() + range.offset, range.size, file_offset) >= 0 && good;
    if (!good) {
      ::_exit(9);
    }
#ifdef SLIPWAY_SANITIZE
    if (i % kLeakEvery == kLeakEvery - 1 || i + 1 == count) {
      engine.reset();
      if (__lsan_do_recoverable_leak_check() != 0) {
        shared->answers[i].outcome = Outcome::kLeaked;
        shared->at = i + 1;
        ::_exit(0);
      }
      engine = make_engine_for_trials();
    }
#endif
  }
  shared->at = count;
  ::_exit(0);
}

constexpr std::size_t kMostWords = 12000;

double cpu_seconds_of(pid_t process) {
  clockid_t clock = 0;
  timespec now{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &now) != 0) {
    return 0;
  }
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double wall_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Waits for the process's end; true when it had to be ended since it used `limit` seconds of CPU, or waited
// 30 times as long, without `at` changing.
bool watch(pid_t process, const std::atomic<std::size_t>& at, std::size_t limit, int* ended) {
  constexpr double kWallFactor = 30;  // a machine may be busy with other things
  constexpr useconds_t kPause = 500;
  std::size_t reached = SIZE_MAX;
  double cpu = 0;
  double wall = 0;
  while (::waitpid(process, ended, WNOHANG) == 0) {
    const std::size_t now = at;
    if (now != reached) {
      reached = now;
      cpu = cpu_seconds_of(process);
      wall = wall_seconds();
    } else if (cpu_seconds_of(process) - cpu > static_cast<double>(limit) ||
               wall_seconds() - wall > kWallFactor * static_cast<double>(limit)) {
      ::kill(process, SIGKILL);
      ::waitpid(process, ended, 0);
      return true;
    }
    ::usleep(kPause);
  }
  return false;
}

// What was written to a file, its beginning if it is long.
std::string words_of(int file) {
  const off_t size = ::lseek(file, 0, SEEK_END);
  std::string text(size < 0 ? 0 : std::min<std::size_t>(static_cast<std::size_t>(size), kMostWords), '\0');
  const ssize_t read = ::pread(file, text.data(), text.size(), 0);
  text.resize(read < 0 ? 0 : static_cast<std::size_t>(read));
  return text;
}

}  // namespace

void keep_last_words() {
#ifndef SLIPWAY_SANITIZE
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
#endif
}

const char* name_of(Outcome outcome) {
  static const char* const kNames[] = {"none",    "ran",     "loaded", "refused", "wordless",
                                       "differs", "crashed", "hung",   "leaked"};
  return kNames[static_cast<std::size_t>(outcome)];
}

bool is_finding(Outcome outcome) {
  return outcome == Outcome::kNone || outcome >= Outcome::kWordless;
}

bool try_all(const std::vector<std::uint8_t>& file, std::size_t count, const Change& change,
             std::size_t cpu_seconds, const OnTrial& on_trial) {
  const std::size_t bytes = sizeof(Shared) + count * sizeof(Shared::Answer);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  auto* shared = new (memory) Shared{};
  shared->answers = reinterpret_cast<Shared::Answer*>(shared + 1);
  std::size_t next = 0;
  while (next < count) {
    const int words = ::memfd_create("words", MFD_CLOEXEC);
    shared->at = next;
    const pid_t process = ::fork();
    if (process < 0) {
      return false;
    }
    if (process == 0) {
      ::dup2(words, STDERR_FILENO);
      work(file, next, count, change, shared);
    }
    int ended = 0;
    const bool hung = watch(process, shared->at, cpu_seconds, &ended);
    const std::size_t reached = shared->at;
    const std::string report = words_of(words);
    ::close(words);
    for (; next < reached; ++next) {
      const Shared::Answer answer = shared->answers[next];
      on_trial(next, {answer.outcome, answer.code, next + 1 == reached ? report : ""});
    }
    if (reached < count && (hung || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0)) {
      on_trial(next++, {hung ? Outcome::kHung : Outcome::kCrashed, 0, report});
    }
  }
  ::munmap(memory, bytes);
  return true;
}

}  // namespace slipway::fuzz
