#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runner/options.h"
#include "slipway/status.h"

namespace slipway {

// What ends a process that can no longer go on by itself.
enum class Ending : std::uint8_t { kSegment, kBus, kInstruction, kArithmetic, kAbort, kTime };
inline constexpr std::size_t kEndings = 6;

// The answer to such an end. `doing` completes a sentence: "loaded a.pte". A crash (kCrash) is never blamed
// on the program's file: what is wrong with a file is found by checks, and said by them.
Status status_of(Ending ending, const std::string& doing);

// What is left to say, made beforehand: the handler may call neither malloc nor stdio.
struct LastWords {
  std::string text;  // for standard error
  std::string json;  // empty: nobody wants it
  int code = 0;      // the exit code
};
using AllLastWords = std::array<LastWords, kEndings>;

// While one of these lives, a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, or what another system calls
// them) and the end of the processor time allowed (SIGXCPU) end the process with the words for them: on
// standard error and, where JSON is wanted, on standard output or in `json_path`. One at a time.
class CrashGuard {
 public:
  // `json_path` empty: standard output.
  CrashGuard(AllLastWords words, const std::string& json_path);
  ~CrashGuard();
  CrashGuard(const CrashGuard&) = delete;
  CrashGuard& operator=(const CrashGuard&) = delete;
};

// A guard with the answers of status_of; nullptr in a build with sanitizers, which report crashes themselves.
std::unique_ptr<CrashGuard> guard_while(const std::string& doing, const JsonWish& json);

// What describing a program may take, which may come from anywhere: memory by the file's size (of all its
// files), processor time in all. The limits are this process's own from here on, where its system has such;
// those that are lower already stay, and a further call may allow more. Without memory the answer is kMemory,
// without time kLimit.
inline constexpr unsigned kDescribeSeconds = 100;
void limit_describing(std::uint64_t bytes);

// Weights are packed for the list of kernels: once, in twice the size where half precision is widened, beside
// what a graph has in between.
inline std::uint64_t describe_bytes(std::uint64_t file_size) {
  constexpr std::uint64_t kAlways = std::uint64_t{1} << 30;
  constexpr std::uint64_t kTimes = 8;
  return file_size > (UINT64_MAX - kAlways) / kTimes ? UINT64_MAX : kAlways + kTimes * file_size;
}

}  // namespace slipway
