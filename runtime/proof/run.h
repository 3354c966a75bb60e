#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cases.h"

namespace proof {

enum class Outcome { kPassed, kFailed, kUnsupported };

const char* OutcomeName(Outcome outcome);

struct Result {
  std::string name, op, dtype, shape;
  Outcome outcome = Outcome::kFailed;
  // What XNNPACK answered; why the case failed, or why the CPU cannot run it.
  std::string status, why;
  double tolerance = 0, max_error = 0;
  std::vector<std::string> operators;
  // Address in the program's file -> how often the program was seen there.
  std::map<std::uintptr_t, unsigned> samples;
};

// Runs a case on one thread and on two and judges it. Then, if sample_ms is not 0, repeats it on one thread
// for that many milliseconds of processor time and notes where the program is.
Result RunCase(const Case& wanted, const Cpu& cpu, unsigned sample_ms);

}  // namespace proof
