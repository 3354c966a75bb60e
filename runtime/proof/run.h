#pragma once

#include <xnnpack.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "problem.h"

namespace proof {

// The CPU as cpuinfo sees it: what XNNPACK chooses its kernels by.
struct Cpu {
  bool known = false;  // cpuinfo could read it
  std::string name;
  std::vector<std::string> features;

  // What the expectations of the cases depend on.
  bool half_arithmetic = false;  // computes in half precision (Arm)
  bool half_emulated = false;    // x86: converts to single precision and back
  bool kleidiai_dotprod = false, kleidiai_i8mm = false, kleidiai_sme2 = false;
};

Cpu ReadCpu();

// Version of the KleidiAI that XNNPACK was built with; empty: without.
std::string KleidiaiVersion();
std::string XnnpackVersion();

// What XNNPACK must do with a case on a CPU: accept it with this operator among those it chose, or refuse it
// with this status, for the reason given.
struct Expectation {
  xnn_status status = xnn_status_success;
  std::string op;
  std::string why;
};

struct Case {
  std::string name;
  std::function<Problem()> make;
  std::function<Expectation(const Cpu&)> expect;
};

// All cases. Their problems are made when asked for.
std::vector<Case> AllCases();

// Notes where this process is, a few hundred times a second of processor time, from its making until Stop().
// One at a time.
class Sampler {
 public:
  // Whether this system can do it; if not, there are never samples.
  static bool Available();

  Sampler();
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Addresses as the program's symbol table has them, and how often each was seen.
  std::map<std::uintptr_t, unsigned> Stop();
};

enum class Outcome { kPassed, kFailed, kUnsupported };

const char* OutcomeName(Outcome outcome);
const char* StatusName(xnn_status status);

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
