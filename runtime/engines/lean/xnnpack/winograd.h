// Winograd's method F(2x2, 3x3) for convolutions in float32: 16 products for each 4 results of a channel,
// where the sum over a window takes 36. XNNPACK does not have it.
//
// 4x4 pixels are transformed by sums and differences, multiplied by transformed weights with our kernels for
// products, and sums of 16 products are transformed to 2x2 results. The same pixels and weights give the same
// results with any number of threads. Where a pixel is infinite, results of its tile may be no numbers: the
// method subtracts what a plain sum does not contain.
#pragma once

#include <pthreadpool.h>
#include <xnnpack.h>

#include <optional>
#include <string>

#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/packed_weights.h"

namespace slipway::lean {

// A convolution that is computed so: the kernel for products in columns of its transformed weights, whose
// columns depend on the weights alone, and how these are packed on the threads.
struct WinogradLayer {
  TileShape shape;
  Packer packer;
};

// Of a convolution with 3x3 windows that lie side by side and with constant weights; nothing where sums over
// windows take fewer cycles.
std::optional<WinogradLayer> winograd_layer(const TileSet& set, const xnn_node& node, const xnn_value* values,
                                            pthreadpool_t threads);

// From now on the operator's weights are Winograd's. It must not run before hook_winograd().
void mark_winograd(xnn_operator_t op);

// Gives the runtime's marked operators their work: whenever XNNPACK reshapes one, it is planned anew.
void hook_winograd(xnn_runtime_t runtime);

// "slipway_f32_winograd_2x2_3x3__avx512f"; empty for other kernels.
std::string winograd_name(void (*kernel)());

}  // namespace slipway::lean
