// Convolutions in 8 bits over an image of few channels, as a net's first layer is.
//
// XNNPACK's kernels take each pixel of a window by itself and pad its channels to what they multiply at once:
// with three channels most of that is padding. Here the pixels of a window are copied together, one window
// after the other (im2col), and the layer is a product over them. Sums of integers are the same in any order,
// so the results have the same bits.
#pragma once

#include <xnnpack.h>

struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// Whether the node is such a convolution, and this processor computes it faster so. It depends on the window
// and the weights alone: methods with other sizes of images share the packed weights.
bool takes_im2col(const xnn_node& node, const xnn_value* values);

// The node of the product over windows, of which XNNPACK is to make the operator.
xnn_node product_over_windows(const xnn_node& node);

// Lets each operator that was made of such a product read the image: when it runs, it copies windows together
// and multiplies them. Called once, before the runtime is reshaped.
void hook_im2col(xnn_runtime_t runtime, const xnn_subgraph& subgraph);

}  // namespace slipway::lean
