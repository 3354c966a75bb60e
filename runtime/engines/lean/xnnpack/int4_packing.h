// Packs weights of 4 bits with a scale for each block of the depth: for XNNPACK's kernels, faster than
// XNNPACK and byte for byte as it does; and for our kernel.
#pragma once

#include <pthreadpool.h>

#include <cstddef>
#include <cstdint>

namespace slipway::lean {

// The part of xnn_pack_qs8_qb4w_gemm_goi_w's arguments that say where everything lies.
struct Int4Panels {
  std::size_t columns = 0;      // outputs
  std::size_t depth = 0;        // inputs, two in a byte: a multiple of kInt4Together
  std::size_t panel = 0;        // columns that are packed together
  std::size_t block = 0;        // elements of the depth that share a scale: a multiple of kInt4Together
  std::size_t block_extra = 0;  // bytes that a panel has behind each block
  std::size_t panel_extra = 0;  // and at its end
  bool quads = false;           // in the order of int4_tile.h, whose panel it has then

  std::size_t count() const { return (columns + panel - 1) / panel; }
  std::size_t panel_bytes() const {
    return panel * (sizeof(float) + depth / 2) + depth / block * block_extra + panel_extra;
  }
};

constexpr std::size_t kInt4Together = 16;

// Packs panels `first` to `last` to `packed`, which is where the first of all begins and holds zeros.
// `scales`: the bits of a bfloat16, one for each block of each column.
void pack_int4(const Int4Panels& panels, const std::uint8_t* weights, const std::uint16_t* scales,
               std::int32_t input_zero, std::uint8_t* packed, std::size_t first, std::size_t last);

// While it lives, XNNPACK packs such weights with all threads. One at a time: its tables are shared.
class Int4Packing {
 public:
  explicit Int4Packing(pthreadpool_t threads);
  ~Int4Packing();
  Int4Packing(const Int4Packing&) = delete;
  Int4Packing& operator=(const Int4Packing&) = delete;
};

}  // namespace slipway::lean
