// What the processor can do at most, measured: multiplications and additions in float32 that stay in
// registers, and numbers read from memory.
#pragma once

#include <cstdint>
#include <optional>
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
  std::uint64_t cache_bytes = 0;   // of the last level; 0: the system does not tell
  std::vector<RooflinePoint> points;
};

// More threads than this are a slip of the hand.
inline constexpr unsigned kMostRooflineThreads = 1024;

// One thread, then `threads` where that is more. Takes about a second. kUsage beyond kMostRooflineThreads and
// in a runner that was linked for some programs only, kMemory where there is no room for what is read,
// kExecution when the processor computes wrongly or starts no thread.
Result<Roofline> measure_roofline(unsigned threads);

// Bytes of all caches of the last level that the system reports, each once however many cores share it; 0
// when it reports none. `root` is another root than "/", for tests on Linux.
std::uint64_t last_level_caches(const std::string& root = "");

// How many bytes to read: four times the last level's caches, as the benchmark STREAM does, so that little of
// it is still in them the next time; at least 128 MiB. No more than a quarter of the memory that is `left`
// where twice the caches and 16 MiB fit into that.
std::uint64_t roofline_buffer(std::uint64_t caches, std::optional<std::uint64_t> left);

std::string roofline_json(const Roofline& found, const CpuInfo& cpu);
std::string roofline_text(const Roofline& found, const CpuInfo& cpu);

}  // namespace slipway
