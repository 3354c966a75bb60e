// XNNPACK's own packing of weights, by all threads: each packs some panels with XNNPACK's function, or with
// ours where that is faster.
#pragma once

#include <pthreadpool.h>

#include "lean/xnnpack/byte_packing.h"
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

}  // namespace slipway::lean
