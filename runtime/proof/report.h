#pragma once

#include <string>
#include <vector>

#include "cpu.h"
#include "run.h"

namespace proof {

// A table for people.
std::string Table(const Cpu& cpu, const std::vector<Result>& results);

// One JSON document. It holds no times: the same program on the same CPU says the same, but for samples.
std::string Json(const Cpu& cpu, const std::vector<Result>& results);

bool AllPassed(const std::vector<Result>& results);

}  // namespace proof
