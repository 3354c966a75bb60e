#pragma once

#include <cstddef>
#include <cstdint>
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

// While one of these lives, a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, or what another system calls
// them) ends the process with the answer of status_of: on standard error and, where JSON is wanted, on
// standard output or in a file. One at a time. Sanitizers report crashes themselves: no effect with them.
class CrashGuard {
 public:
  CrashGuard(const std::string& doing, const JsonWish& json);
  ~CrashGuard();
  CrashGuard(const CrashGuard&) = delete;
  CrashGuard& operator=(const CrashGuard&) = delete;
};

}  // namespace slipway
