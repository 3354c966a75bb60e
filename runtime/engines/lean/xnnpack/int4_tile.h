// The kernel for 4-bit weights with a scale for each block of the depth. Plain C types: what includes this is
// compiled with flags that the rest of the program must not have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lean/xnnpack/byte_tile.h"

namespace slipway::lean {

inline constexpr std::size_t kInt4Rows = 12;  // of a tile, at most
inline constexpr std::size_t kInt4RowsInAvx2 = 6;
inline constexpr std::size_t kInt4Columns = 16;  // of a panel
inline constexpr std::size_t kInt4Depth = 4;     // neighbours of a column that lie together: its kr
// Bytes of a tile's rows, which the kernel copies to its stack: with musl, a thread has 128 KiB.
inline constexpr std::size_t kInt4RowsBytes = std::size_t{40} * 1024;

// As XNNPACK calls its kernels and lays out their parameters.
struct Int4Limits {
  float least;
  float greatest;
  std::size_t block;  // elements of the depth with one scale: a multiple of 32
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
