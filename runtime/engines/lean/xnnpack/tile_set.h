// The kernels of one instruction set, by rows and columns. Plain C types: what includes this is compiled with
// flags that the rest of the program must not have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipway::lean {

inline constexpr std::size_t kMostTileRows = 12;
inline constexpr std::size_t kMostTileVectors = 3;

// float16, which is computed in float32.
struct Half {
  std::uint16_t bits;
};

// As XNNPACK calls its kernels. `rows` may be fewer than the tile's; `limits` are the least and the greatest
// result.
template <typename Element>
using Gemm = void (*)(std::size_t rows, std::size_t columns, std::size_t depth_bytes, const Element* a,
                      std::size_t a_stride, const Element* weights, Element* c, std::size_t c_stride,
                      std::size_t panel_stride, const Element* limits);
template <typename Element>
using Igemm = void (*)(std::size_t rows, std::size_t columns, std::size_t depth_bytes, std::size_t taps_bytes,
                       const Element** a, const Element* weights, Element* c, std::size_t c_stride,
                       std::size_t panel_stride, std::size_t a_offset, const Element* zero,
                       const Element* limits);
// Packs panels `first` to before `last` of weights whose rows hold `depth` elements, one row for each output.
template <typename From, typename Element>
using PackRows = void (*)(std::size_t columns, std::size_t depth, std::size_t panel, const From* weights,
                          const From* bias, Element* packed, std::size_t first, std::size_t last);

// Packs a vector's lanes of columns of bytes, which are `stride` apart: four of a column together, then the
// next column's; the next four of all of them `step` behind. `count` bytes of each column: a multiple of
// four, at least of four for each lane, at most kMostQuadBytes. Adds what each column sums up to to `sums`.
inline constexpr std::size_t kMostQuadBytes = 512;
using PackQuads = void (*)(const std::int8_t* from, std::size_t stride, std::size_t count, std::uint8_t* to,
                           std::size_t step, std::int32_t* sums);

// As XNNPACK calls its kernels of depthwise convolutions.
template <typename Element>
using DepthwiseKernel = void (*)(std::size_t channels, std::size_t width, const Element** input,
                                 const Element* weights, Element* output, std::ptrdiff_t input_stride,
                                 std::size_t output_increment, std::size_t input_offset, const Element* zero,
                                 const Element* limits);

// As XNNPACK calls its kernels of transpositions: `height` rows of `width` elements become columns; strides
// in bytes.
using Transpose = void (*)(const void* input, void* output, std::size_t input_stride,
                           std::size_t output_stride, std::size_t width, std::size_t height);

// As XNNPACK calls its kernels of a scale and an offset for each channel. Packed weights have a vector of
// scales, then their offsets.
using ScaleChannels = void (*)(std::size_t rows, std::size_t channel_bytes, const float* input,
                               std::size_t input_stride, const float* weights, float* output,
                               std::size_t output_stride, const float* limits);

template <typename Element>
struct Depthwise {
  std::size_t taps;  // at most, of a window
  DepthwiseKernel<Element> kernel;
};
inline constexpr std::size_t kDepthwiseKernels = 5;
inline constexpr std::size_t kHalfDepthwiseKernels = 3;

template <typename Element>
struct Tile {
  Gemm<Element> gemm = nullptr;
  Igemm<Element> igemm = nullptr;
};

template <typename Element>
using Tiles = Tile<Element>[kMostTileVectors][kMostTileRows];  // by vectors and rows, less one

// Of three rows that are interleaved, in the vector `part` of `lanes` elements: the lanes that come from
// `row`, a bit for each.
constexpr unsigned lanes_of_third(std::size_t lanes, std::size_t part, std::size_t row) {
  unsigned found = 0;
  for (std::size_t i = 0; i < lanes; ++i) {
    found |= (part * lanes + i) % 3 == row ? 1U << i : 0U;
  }
  return found;
}
// The element of its row that each lane gets, vector by vector.
alignas(64) inline constexpr std::int32_t kThirds[48] = {
    0, 0, 0, 1, 1, 1, 2,  2,  2,  3,  3,  3,  4,  4,  4,  5,  5,  5,  6,  6,  6,  7,  7,  7,
    8, 8, 8, 9, 9, 9, 10, 10, 10, 11, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15};

struct TileSet {
  const char* isa;
  std::size_t lanes;  // float32 elements of a vector
  // Processor cycles for a vector from the second cache, where that was measured to be the bound; else 0.
  double second_cache;
  PackRows<float, float> pack_rows;
  PackRows<Half, Half> pack_halves;
  PackRows<float, Half> pack_rounded;
  PackQuads pack_quads;
  Transpose transpose;  // of elements of 4 bytes
  // Three rows of elements of 1, 2 or 4 bytes that become columns which lie one behind the other, as an
  // image's colours do.
  Transpose interleave[3];
  ScaleChannels scale_channels;
  Tiles<float> tiles;
  Tiles<Half> halves;
  Depthwise<float> depthwise[kDepthwiseKernels];  // fewest taps first
  Depthwise<Half> half_depthwise[kHalfDepthwiseKernels];
};

// The steps of Winograd's method F(2x2, 3x3) that one instruction set computes.
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
extern const TileSet kTiles;
extern const WinogradKernels kWinograd;
}  // namespace avx512f
namespace avx2 {
extern const TileSet kTiles;
extern const WinogradKernels kWinograd;
}  // namespace avx2

// Functions of float16 that compute in float32 and round once, in the place of XNNPACK's kernels. Its own are
// off by four steps (tanh), have no subnormal results (sigmoid), make NaN of infinity's and of -0's square
// root, and where they compute in float16 (on Arm) half of the result may be wrong.

// As XNNPACK calls its kernels of one input.
using HalfFunction = void (*)(std::size_t bytes, const Half* from, Half* to, const void* params);

struct HalfFunctions {
  HalfFunction hardswish;
  HalfFunction sigmoid;
  HalfFunction square_root;
  HalfFunction reciprocal_root;
  HalfFunction tanh;
};

// On 64-bit Arm, and on 64-bit x86 with AVX2, FMA and F16C.
extern const HalfFunctions kHalfFunctions;

}  // namespace slipway::lean
