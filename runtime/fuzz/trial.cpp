#include "trial.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "exercise.h"
#include "last_words.h"
#include "watch.h"

#ifdef SLIPWAY_SANITIZE
#include <sanitizer/lsan_interface.h>

constexpr std::size_t kLeakEvery = 500;
#else
#include "guarded_memory.h"
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

}  // namespace slipway::fuzz
