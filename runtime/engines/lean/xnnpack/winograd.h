// Convolutions of XNNPACK's that are computed by Winograd's method.
#pragma once

#include <pthreadpool.h>
#include <xnnpack.h>

#include <cstddef>
#include <string>

#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/tile_set.h"
#include "lean/xnnpack/winograd_plan.h"

struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// Whether the node is a convolution in float32 with 3x3 windows that lie side by side, and with constant
// weights.
bool can_be_winograd(const xnn_node& node, const xnn_value* values);
// Of such a node; nothing of how its input lies in memory.
WinogradSizes winograd_sizes(const xnn_node& node, const xnn_value* values);

// Packs the weights [results, 3, 3, channels] of such a node, on these threads.
Packer winograd_packer(const TileSet& set, const WinogradSizes& sizes, std::size_t panel, const void* weights,
                       const void* bias, pthreadpool_t threads);

// From now on the operator's weights are Winograd's. It must not run before hook_winograd().
void mark_winograd(xnn_operator_t op);
bool is_winograd(const xnn_operator& op);

// Gives the runtime's marked operators their work: whenever XNNPACK reshapes one, it is planned anew.
void hook_winograd(xnn_runtime_t runtime);

// "slipway_f32_winograd_2x2_3x3__avx512f"; empty for other kernels.
std::string winograd_name(void (*kernel)());

}  // namespace slipway::lean
