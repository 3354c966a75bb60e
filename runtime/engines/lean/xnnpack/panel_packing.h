// XNNPACK's own packing of weights, by all threads: each packs some panels with XNNPACK's function, or with
// ours where that is faster.
#pragma once

#include <pthreadpool.h>

#include <cstddef>
#include <cstdint>

#include "lean/xnnpack/packed_weights.h"

struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// While it lives, XNNPACK packs the weights that this thread has it pack with all of those threads: of
// products and convolutions in float32, float16 and 8 bits. XNNPACK's tables are shared: one at a time.
class PanelPacking {
 public:
  explicit PanelPacking(pthreadpool_t threads);
  ~PanelPacking();
  PanelPacking(const PanelPacking&) = delete;
  PanelPacking& operator=(const PanelPacking&) = delete;
};

// For a product or convolution in 8 bits with a scale for each channel, of which XNNPACK makes the operator
// next: packs as XNNPACK would, scales included, into memory that nobody cleared. XNNPACK clears it in one
// thread. Nothing for other layers. Only while a PanelPacking lives; what the node points to must live as
// long.
Packer panel_packer(const xnn_node& node, const xnn_value* values);

// Packs weights of 8 bits in XNNPACK's order, faster than XNNPACK's functions for them.

// Weights of a product or a convolution, and the kernel that will read them.
struct PanelSizes {
  std::size_t groups = 1;
  std::size_t columns = 0;  // of a group: its outputs
  std::size_t window = 1;   // elements of a convolution's window
  std::size_t depth = 0;    // inputs of a group, for each element of the window
  std::size_t panel = 0;    // columns that are packed together: the kernel's nr
  std::size_t kr = 1;
  std::size_t sr = 1;
  std::size_t element = 0;      // bytes of a weight
  std::size_t bias = 0;         // and of what each column begins with
  std::size_t panel_extra = 0;  // bytes behind each panel

  std::size_t count() const { return (columns + panel - 1) / panel; }
  std::size_t column_bytes() const { return window * depth * element; }
  std::size_t padded_depth() const {
    const std::size_t together = kr * sr;
    return (depth + together - 1) / together * together;
  }
  std::size_t panel_bytes() const { return panel * (bias + window * padded_depth() * element) + panel_extra; }
};

// Whether pack_bytes has that order.
bool packs_bytes(const PanelSizes& sizes);

// Packs panels `first` to `last` of a group to `packed`, which is where the group's first one begins. Each
// column begins with its bias less the sum of its weights times `input_zero`. Columns that a panel has
// beside the weights' stay as they are. No bias: nullptr.
void pack_bytes(const PanelSizes& sizes, const std::int8_t* weights, const std::int32_t* bias,
                std::int32_t input_zero, std::uint8_t* packed, std::size_t first, std::size_t last);

// Packs weights of 4 bits with a scale for each block of the depth: for XNNPACK's kernels, faster than
// XNNPACK and byte for byte as it does; and for our kernel.

// The part of xnn_pack_qs8_qb4w_gemm_goi_w's arguments that say where everything lies.
struct Int4Panels {
  std::size_t columns = 0;      // outputs
  std::size_t depth = 0;        // inputs, two in a byte: a multiple of kInt4Together
  std::size_t panel = 0;        // columns that are packed together
  std::size_t block = 0;        // elements of the depth that share a scale: a multiple of kInt4Together
  std::size_t block_extra = 0;  // bytes that a panel has behind each block
  std::size_t panel_extra = 0;  // and at its end
  bool quads = false;           // in the order of byte_tile.h, whose panel it has then

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
