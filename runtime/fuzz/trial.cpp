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
#include <memory>

#include "exercise.h"

#ifdef SLIPWAY_SANITIZE
#include <sanitizer/lsan_interface.h>

constexpr std::size_t kLeakEvery = 500;
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

void on_abort(const char* message) {
  std::fprintf(stderr, "the engine gave up: %s\n", message);
  std::abort();
}

Shared::Answer answer_of(const Status& status, const Trace& trace, std::size_t methods_expected) {
  if (status.ok()) {
    return {trace.executed >= methods_expected ? Outcome::kRan : Outcome::kLoaded, 0};
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
  const Shared::Answer answer = answer_of(status, trace, 1);
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

[[noreturn]] void work(const std::vector<std::uint8_t>& file, std::size_t first, std::size_t count,
                       const Change& change, Shared* shared) {
  keep_last_words();
  std::vector<std::uint8_t> copy = file;
  MemoryFile stored;
  // One engine for many: what a program leaves behind in it must not harm the next.
  std::unique_ptr<Engine> engine = make_engine(on_abort);
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
      engine = make_engine(on_abort);
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

constexpr rlim_t kMostTrialMemory = rlim_t{6} << 30;
// Enough for every program of the zoo, and few enough to end in a fraction of the processor time that is
// allowed: a loop without end is refused for its rounds, and one of the engine's own is found by the time.
constexpr char kMostJumps[] = "--max_jumps=10000";

// Runs in the memory of the parent (vfork), so it only calls the kernel.
[[noreturn]] void become(const TrialOptions& options, const char* model, int output) {
  const auto seconds = static_cast<rlim_t>(options.cpu_seconds);
  const rlimit memory = {kMostTrialMemory, kMostTrialMemory};
  const rlimit time = {seconds, seconds + 1};
  ::setrlimit(RLIMIT_AS, &memory);
  ::setrlimit(RLIMIT_CPU, &time);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execl(options.runner.c_str(), options.runner.c_str(), model, "--json", "--warmup=1", "--num_executions=1",
          "--cpu_threads=1", kMostJumps, static_cast<char*>(nullptr));
  ::_exit(127);
}

// An answer in words has both of these.
bool has_words(const std::string& answer) {
  return answer.find("\"message\":") != std::string::npos && answer.find("\"fix\":") != std::string::npos;
}

Trial judge(bool hung, int ended, const std::string& answer) {
  if (hung || (WIFSIGNALED(ended) && WTERMSIG(ended) == SIGXCPU)) {
    return {Outcome::kHung, 0, answer};
  }
  if (!WIFEXITED(ended)) {
    return {Outcome::kCrashed, 0, "signal " + std::to_string(WTERMSIG(ended)) + "\n" + answer};
  }
  const int code = WEXITSTATUS(ended);
  if (code == 0) {
    return {Outcome::kRan, 0, ""};
  }
  if (code == static_cast<int>(Code::kLimit)) {
    const bool rounds = answer.find("jumped backwards") != std::string::npos && has_words(answer);
    return {rounds ? Outcome::kRefused : Outcome::kHung, code, rounds ? "" : answer};
  }
  // A changed name is no method that the command line means: the usage is wrong, then.
  if (code < static_cast<int>(Code::kUsage) || code > static_cast<int>(Code::kMemory)) {
    return {Outcome::kCrashed, 0, "exit code " + std::to_string(code) + "\n" + answer};
  }
  return {has_words(answer) ? Outcome::kRefused : Outcome::kWordless, code, has_words(answer) ? "" : answer};
}

// Waits for the process's end; true when it had to be ended since it used `limit` seconds of CPU, or waited
// 30 times as long, without `at` changing (null: altogether).
bool watch(pid_t process, const std::atomic<std::size_t>* at, std::size_t limit, int* ended) {
  constexpr double kWallFactor = 30;  // a machine may be busy with other things
  constexpr useconds_t kPause = 500;
  std::size_t reached = SIZE_MAX;
  double cpu = 0;
  double wall = 0;
  while (::waitpid(process, ended, WNOHANG) == 0) {
    const std::size_t now = at == nullptr ? 0 : at->load();
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

const char* name_of(Outcome outcome) {
  static const char* const kNames[] = {"none",    "ran",     "loaded", "refused", "wordless",
                                       "differs", "crashed", "hung",   "leaked"};
  return kNames[static_cast<std::size_t>(outcome)];
}

bool is_finding(Outcome outcome) {
  return outcome == Outcome::kNone || outcome >= Outcome::kWordless;
}

bool try_all(const std::vector<std::uint8_t>& file, std::size_t count, const Change& change,
             const TrialOptions& options, const OnTrial& on_trial) {
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
    const bool hung = watch(process, &shared->at, options.cpu_seconds, &ended);
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

bool run_all(const std::vector<std::uint8_t>& file, std::size_t count, const Change& change,
             const TrialOptions& options, const OnTrial& on_trial) {
  std::vector<std::uint8_t> copy = file;
  MemoryFile stored;
  const int target = stored.write(copy.data(), copy.size()) ? ::open(stored.path().c_str(), O_RDWR) : -1;
  const int output = ::memfd_create("answer", MFD_CLOEXEC);
  if (target < 0 || output < 0) {
    return false;
  }
  const std::string model = "--model_path=/proc/self/fd/" + std::to_string(target);
  for (std::size_t i = 0; i < count; ++i) {
    const PatchedRange range = change(i, copy.data());
    const auto file_offset = static_cast<off_t>(range.offset);
    bool good = ::pwrite(target, copy.data() + range.offset, range.size, file_offset) >= 0;
    good = ::ftruncate(output, 0) == 0 && ::lseek(output, 0, SEEK_SET) == 0 && good;
    // Each allocation here is a mapping of its own: to copy them all takes longer than most trials.
    const pid_t process = good ? ::vfork() : -1;
    if (process == 0) {
      become(options, model.c_str(), output);
    }
    if (process < 0) {
      return false;
    }
    int ended = 0;
    const bool hung = watch(process, nullptr, options.cpu_seconds, &ended);
    on_trial(i, judge(hung, ended, words_of(output)));
    std::memcpy(copy.data() + range.offset, file.data() + range.offset, range.size);
    if (::pwrite(target, copy.data() + range.offset, range.size, file_offset) < 0) {
      return false;
    }
  }
  ::close(output);
  ::close(target);
  return true;
}

}  // namespace slipway::fuzz
