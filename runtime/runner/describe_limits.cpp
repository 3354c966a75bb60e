#include "runner/describe_limits.h"

namespace slipway {

// Weights are packed for the list of kernels: once, in twice the size where half precision is widened, beside
// what a graph has in between.
std::uint64_t describe_bytes(std::uint64_t file_size) {
  constexpr std::uint64_t kAlways = std::uint64_t{1} << 30;
  constexpr std::uint64_t kTimes = 8;
  return file_size > (UINT64_MAX - kAlways) / kTimes ? UINT64_MAX : kAlways + kTimes * file_size;
}

}  // namespace slipway
