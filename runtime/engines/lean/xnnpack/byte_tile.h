// Kernels for layers in 8 bits with a scale for each column. Plain C types: what includes this is compiled
// with flags that the rest of the program must not have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipway::lean {

inline constexpr std::size_t kByteChannels = 16;  // of a depthwise convolution's block
inline constexpr std::size_t kByteTogether = 4;   // neighbours of a column that lie together: its kr

// As XNNPACK calls its kernels and lays out their parameters: of layers that write 8 bits, and of those whose
// input is quantized at run time, which write float32.
struct ByteLimits {
  std::int16_t zero_point;
  std::int16_t least;
  std::int16_t greatest;
};
struct FloatLimits {
  float least;
  float greatest;
};
struct ByteRow {
  std::int32_t zero_point;
  float scale;
};

using ByteGemm = void (*)(std::size_t rows, std::size_t columns, std::size_t depth, const std::int8_t* a,
                          std::size_t a_stride, const void* weights, std::int8_t* c, std::size_t c_stride,
                          std::size_t panel_stride, const ByteLimits* limits);
using ByteIgemm = void (*)(std::size_t rows, std::size_t columns, std::size_t depth, std::size_t taps_bytes,
                           const std::int8_t** a, const void* weights, std::int8_t* c, std::size_t c_stride,
                           std::size_t panel_stride, std::size_t a_offset, const std::int8_t* zero,
                           const ByteLimits* limits);
using DynamicGemm = void (*)(std::size_t rows, std::size_t columns, std::size_t depth, const std::int8_t* a,
                             std::size_t a_stride, const void* weights, float* c, std::size_t c_stride,
                             std::size_t panel_stride, const FloatLimits* limits, const ByteRow* quantized);
using DynamicIgemm = void (*)(std::size_t rows, std::size_t columns, std::size_t depth,
                              std::size_t taps_bytes, const std::int8_t** a, const void* weights, float* c,
                              std::size_t c_stride, std::size_t panel_stride, std::size_t a_offset,
                              const std::int8_t* zero, const std::int8_t* zero_data,
                              const FloatLimits* limits, const ByteRow* quantized);

// Of depthwise convolutions; `zero` stands for pixels outside of the picture.
using ByteDepthwiseKernel = void (*)(std::size_t channels, std::size_t width, const std::int8_t** input,
                                     const void* weights, std::int8_t* output, std::ptrdiff_t input_stride,
                                     std::size_t output_increment, std::size_t input_offset,
                                     const std::int8_t* zero, const ByteLimits* limits);

struct ByteDepthwise {
  std::size_t taps;  // at most, of a window
  ByteDepthwiseKernel kernel;
};
inline constexpr std::size_t kByteDepthwiseKernels = 2;

// The kernels of tiles of one height. They compute any number of rows up to it.
struct ByteTile {
  ByteGemm gemm;
  ByteIgemm igemm;
  DynamicGemm dynamic_gemm;
  DynamicIgemm dynamic_igemm;
};
struct ByteTiles {
  const char* feature;
  std::size_t rows;           // of a tile
  std::size_t columns;        // of a panel
  std::size_t least_columns;  // of a layer: in narrower ones XNNPACK's are faster
  std::size_t most_taps;
  ByteTile many;
  ByteTile one;  // of one row
};

namespace avx2 {
extern const ByteTiles kByteTiles;
extern const ByteDepthwise kByteDepthwise[kByteDepthwiseKernels];  // fewest taps first
}  // namespace avx2
namespace avx512vnni {
extern const ByteTiles kByteTiles;
}  // namespace avx512vnni
namespace avx512vnnivbmi {
extern const ByteDepthwise kByteDepthwise[kByteDepthwiseKernels];
}  // namespace avx512vnnivbmi

// Sums and products of bytes element by element, as XNNPACK lays out their parameters.
struct ElementLimits {
  std::int16_t zero_point;
  std::int8_t least;
  std::int8_t greatest;
};
struct ByteSum {
  std::int8_t zero_points[2];  // which the bias has
  std::int32_t bias;
  std::int32_t a_multiplier;
  std::int32_t b_multiplier;
  std::int32_t shift;
  ElementLimits limits;
};
struct ByteProduct {
  std::int8_t a_zero_point;
  std::int8_t b_zero_point;
  float scale;
  ElementLimits limits;
};
namespace avx512vnni {
void byte_sums_on_avx512vnni(std::size_t count, const std::int8_t* a, const std::int8_t* b, std::int8_t* to,
                             const ByteSum* params);
void byte_products_on_avx512vnni(std::size_t count, const std::int8_t* a, const std::int8_t* b,
                                 std::int8_t* to, const ByteProduct* params);
}  // namespace avx512vnni

// The kernels for 4-bit weights with a scale for each block of the depth.

inline constexpr std::size_t kInt4Rows = 12;  // of a tile, at most
inline constexpr std::size_t kInt4RowsInAvx2 = 6;
inline constexpr std::size_t kInt4Columns = 16;  // of a panel
inline constexpr std::size_t kInt4Depth = 4;     // neighbours of a column that lie together: its kr
inline constexpr std::size_t kInt4Unit = 32;     // every block is a multiple of it
// Bytes of a tile's rows, which the kernel copies to its stack: with musl, a thread has 128 KiB.
inline constexpr std::size_t kInt4RowsBytes = std::size_t{40} * 1024;
// Bytes of weights between what is read and what is fetched. A single row waits for memory alone, and asks
// early; more rows would lose theirs from the first cache.
template <std::size_t kRows>
constexpr std::size_t kInt4Ahead = kRows == 1 ? 8192 : 1024;

// As XNNPACK calls its kernels and lays out their parameters.
struct Int4Limits {
  float least;
  float greatest;
  std::size_t block;  // elements of the depth with one scale: a multiple of kInt4Unit
};
using Int4Function = void(std::size_t rows, std::size_t columns, std::size_t depth, const std::int8_t* a,
                          std::size_t a_stride, const void* weights, float* c, std::size_t c_stride,
                          std::size_t panel_stride, const Int4Limits* limits, const ByteRow* quantized);

using Int4Gemm = Int4Function*;

namespace avx512vnni {
// Both compute any number of rows up to the most; what they are called by says how many a layer's tiles have.
Int4Function int4_gemm_one_on_avx512vnni, int4_gemm_on_avx512vnni;
}  // namespace avx512vnni

namespace avx2 {
// The same, of at most kInt4RowsInAvx2.
Int4Function int4_gemm_one_on_avx2, int4_gemm_on_avx2;
}  // namespace avx2

}  // namespace slipway::lean
