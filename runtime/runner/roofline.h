// What the processor can do at most, measured: float32 arithmetic in registers, and numbers read from memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/platform.h"
#include "slipway/status.h"

namespace slipway {

struct RooflinePoint {
  unsigned threads = 1;
  double gflops = 0;        // 10^9 operations a second; a multiplication with an addition is two
  double gbytes_per_s = 0;  // 10^9 bytes a second
};

struct Roofline {
  std::string feature;             // whose registers were used
  std::uint64_t buffer_bytes = 0;  // what was read again and again
  std::vector<RooflinePoint> points;
};

// One thread, then `threads` where that is more. Takes about a second. kUsage beyond kMostThreads and in a
// runner that was linked for some programs only, kMemory where there is no room for what is read or no
// thread, kExecution when the processor computes wrongly.
Result<Roofline> measure_roofline(unsigned threads);

std::string roofline_json(const Roofline& found, const CpuInfo& cpu);

}  // namespace slipway
