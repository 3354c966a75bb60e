#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "exercise.h"
#include "slipway/status.h"
#include "trial.h"
#include "watch.h"

namespace slipway::fuzz {
namespace {

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

}  // namespace

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
