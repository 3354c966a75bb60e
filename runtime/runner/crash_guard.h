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
enum class Ending : std::uint8_t { kSegment, kBus, kInstruction, kArithmetic, kAbort };
inline constexpr std::size_t kEndings = 5;

// The answer to such an end. `doing` completes a sentence: "loaded a.pte". A crash (kCrash) is never blamed
// on the program's file: what is wrong with a file is found by checks, and said by them.
Status status_of(Ending ending, const std::string& doing);

// What is left to say, made beforehand: the handler may call neither malloc nor stdio.
struct LastWords {
  std::string text;  // for standard error
  std::string json;  // empty: nobody wants it
};
using AllLastWords = std::array<LastWords, kEndings>;

// While one of these lives, a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, or what another system calls
// them) ends the process with the words for it: on standard error and, where JSON is wanted, on standard
// output or in `json_path`. One at a time.
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

}  // namespace slipway
