// The order in which a product's tiles are computed: weights that were brought near are used for many rows.
#pragma once

#include <xnnpack.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

struct xnn_node;
struct xnn_value;
namespace slipway::lean {

// For a runtime that was given its shapes. XNNPACK reads all packed weights for each tile of rows; with our
// kernels a panel of them is read once for as many rows as stay in a core's second cache, and on 64-bit x86
// with XNNPACK's, too, where there are many weights. `threads`: 1 for none but the caller's.
void set_blocks(xnn_runtime_t runtime, std::size_t threads);

// Chains of element-by-element nodes that begin and end in 8 bits: a value is dequantized, an activation is
// computed in floating point, and the result is quantized again. A byte has 256 values, so a table has all
// results, and one node looks them up.

// From a subgraph without an operator to its runtime.
class ByteTables {
 public:
  // Puts one node in the place of each chain of the subgraph's: numbers of nodes change. XNNPACK's own
  // kernels compute the results, once for each byte, so they have the same bits.
  explicit ByteTables(xnn_subgraph_t subgraph);

  // Gives the runtime of that subgraph the tables.
  xnn_status install(xnn_runtime_t runtime) const;

 private:
  using Table = std::array<std::uint8_t, 256>;
  std::map<std::uint32_t, Table> tables_;  // by the number of the node that looks it up
};

// Convolutions over an image of few channels, as a net's first layer is.
//
// XNNPACK's kernels take each pixel of a window by itself, by a pointer of its own: a window of 7x7 has 392
// bytes of them, and 147 bytes of three channels in 8 bits. In 8 bits they also pad the channels to what they
// multiply at once. Here the pixels of a window are copied together, one window after the other (im2col), and
// the layer is a product over them. The sums have the same order, so the results have the same bits.

// Whether the node is such a convolution, and this processor computes it faster so. It depends on the window
// and the weights alone: methods with other sizes of images share the packed weights.
bool takes_im2col(const xnn_node& node, const xnn_value* values);

// The node of the product over windows, of which XNNPACK is to make the operator.
xnn_node product_over_windows(const xnn_node& node);

// Lets each operator that was made of such a product read the image: when it runs, it copies windows together
// and multiplies them. Called once, before the runtime is reshaped.
void hook_im2col(xnn_runtime_t runtime, const xnn_subgraph& subgraph);

}  // namespace slipway::lean
