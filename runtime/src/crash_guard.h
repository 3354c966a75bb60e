#pragma once

#include <string>

#include "slipway/status.h"

namespace slipway {

// While one of these lives, a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) ends the process with `crash`:
// its message on standard error, `json` to standard output or to a file when asked for, its code as the exit
// code. For what no check can rule out: a file damaged where only its backend understands it, an instruction
// this processor does not have. One at a time.
class CrashGuard {
 public:
  // `json` empty: none is wanted. `json_path` empty: standard output.
  CrashGuard(const Status& crash, const std::string& text, const std::string& json,
             const std::string& json_path);
  ~CrashGuard();
  CrashGuard(const CrashGuard&) = delete;
  CrashGuard& operator=(const CrashGuard&) = delete;
};

}  // namespace slipway
