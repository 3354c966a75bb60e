// What the roofline measures: the same two loops for each instruction set. Plain C types: what includes this
// may be compiled with flags that the rest of the program must not have.
#pragma once

#include <cstddef>

namespace slipway {

struct RooflineLoops {
  const char* feature;  // as /proc/cpuinfo names it
  std::size_t sums;     // that one step adds to, each with one multiplication and one addition
  std::size_t block;    // read() takes a multiple of so many numbers
  // Adds 1 * 1 to every sum, `steps` (a multiple of kRooflineUnroll, at most 2^24) times, in registers.
  // Returns the sum of all sums: steps * sums, where the processor did all of it.
  double (*multiply_add)(std::size_t steps);
  // The sum of the numbers, which are aligned to 64 bytes.
  double (*read)(const float* from, std::size_t count);
};

inline constexpr std::size_t kRooflineUnroll = 4;

// The widest that this program has loops for and this processor can run.
const RooflineLoops& best_roofline_loops();

namespace avx2 {
extern const RooflineLoops kRoofline;
}
namespace avx512f {
extern const RooflineLoops kRoofline;
}

}  // namespace slipway
