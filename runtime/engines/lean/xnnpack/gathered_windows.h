// Convolutions in 8 bits over an image of few channels, as a net's first layer is.
//
// XNNPACK's kernels take each pixel of a window by itself and pad its channels to what they multiply at once:
// with three channels most of that is padding. Here all pixels of a window lie together, one window after the
// other, and the layer is a product over them. Sums of integers are the same in any order, so the results
// have the same bits.
#pragma once

#include <xnnpack.h>

struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// What the method is called among a layer's candidates.
inline constexpr char kByGathering[] = "gathered";

// Whether the node is such a convolution, and this processor computes it faster so. It depends on the window
// and the weights alone: methods with other sizes of images share the packed weights.
bool can_be_gathered(const xnn_node& node, const xnn_value* values);

// The node of the product over windows, of which XNNPACK is to make the operator.
xnn_node product_over_windows(const xnn_node& node);

// Gives operators of the runtime that were made so for nodes of the graph their work: from now on they take
// the image.
void hook_gathered(xnn_runtime_t runtime, const xnn_subgraph& subgraph);

}  // namespace slipway::lean
