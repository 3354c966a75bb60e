#pragma once

#include <xnnpack.h>

#include <functional>
#include <string>
#include <vector>

#include "cpu.h"
#include "problem.h"

namespace proof {

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

}  // namespace proof
