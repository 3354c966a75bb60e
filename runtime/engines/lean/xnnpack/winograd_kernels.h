// The steps of Winograd's method F(2x2, 3x3) that one instruction set computes. Plain C types: what includes
// this is compiled with flags that the rest of the program must not have.
#pragma once

#include <cstddef>

namespace slipway::lean {

inline constexpr std::size_t kWinogradProducts = 16;  // of 4x4 transformed pixels, by 4x4 transformed weights

struct WinogradKernels {
  const char* isa;
  // 4x4 pixels, row by row, to 16 rows of products that lie `stride` elements apart. Writes up to a whole
  // vector.
  void (*input)(const float* const* pixels, std::size_t channels, float* to, std::size_t stride);
  // 16 rows of sums, read by whole vectors, to 2x2 pixels.
  void (*output)(const float* from, std::size_t stride, std::size_t channels, float* const* to,
                 const float* limits);
  // The 3x3 taps of one output channel, each of `channels` elements, to 16 rows.
  void (*weights)(const float* taps, std::size_t channels, float* to, std::size_t stride);
};

namespace avx512f {
extern const WinogradKernels kWinograd;
}
namespace avx2 {
extern const WinogradKernels kWinograd;
}

}  // namespace slipway::lean
