// Our kernels on 64-bit x86: which this processor has, for which nodes, what they are called, and how XNNPACK
// is given them.
//
// XNNPACK has no way to be given a kernel. It reads one table for each type of layer when it makes an
// operator, and copies what it needs; the functions that return the tables as constant return variables. So a
// table has our kernels while such an operator is made, and XNNPACK's again behind it: one operator at a
// time, in all of a process (TileChoice). What each kind of kernel gains is in docs/lean.md.
#pragma once

#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/config-types.h>
#include <xnnpack/config.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lean/xnnpack/byte_tile.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/tile_set.h"

struct xnn_node;
struct xnn_operator;
struct xnn_value;

namespace slipway::lean {

// A table that was changed, and is as before when this ends. nullptr: none.
template <typename Config>
struct PutBack {
  void operator()(Config* table) const { std::copy(before.begin(), before.end(), table); }
  std::vector<Config> before;
};
template <typename Config>
using Changed = std::unique_ptr<Config, PutBack<Config>>;

template <typename Config>
Changed<Config> change(const Config* table, std::size_t count = 1) {
  return {const_cast<Config*>(table),
          {table == nullptr ? std::vector<Config>() : std::vector(table, table + count)}};
}

// One kernel for all kinds of cores.
template <typename Function, typename Kernel>
void put(Function (&functions)[XNN_MAX_UARCH_TYPES], Kernel kernel) {
  std::fill(std::begin(functions), std::end(functions), reinterpret_cast<Function>(kernel));
}

// Products in float32: every number of rows and columns that the registers hold. XNNPACK has one shape for
// each instruction set (7x32 with AVX-512), computes 8 columns as 32 with it, and reads the packed weights
// once for every seven rows. Those that this processor can run, widest vectors first; nullptr where we have
// none.
const TileSet* float_tiles();
// Those for float16: nullptr also where XNNPACK's are twice as fast, because they compute in half precision.
const TileSet* half_tiles();

// Those for layers in 8 bits: with AVX-512's VNNI where there is no AMX, and with AVX2 where XNNPACK's
// kernels are those for AVX2, too, which multiply in 16 bits. nullptr on other processors.
const ByteTiles* byte_tiles();

// Each of these has one of XNNPACK's tables with our kernels for the node; nullptr where only XNNPACK has
// some.

// Layers in 8 bits.
Changed<xnn_gemm_config> byte_kernels(const xnn_node& node, const xnn_value* values);
// Layers with 4-bit weights that have a scale for each block, with AVX-512's VNNI, or else with AVX2.
Changed<xnn_gemm_config> int4_kernels(const xnn_node& node, const xnn_value* values);
// Depthwise convolutions: several neighbours of a row at once; in float32 and float16 windows of any size in
// one pass, in 8 bits those of 9 and 25 pixels.
Changed<xnn_dwconv_config> depthwise_kernels(const xnn_node& node, const xnn_value* values);

// A scale and an offset for each channel in float32, as a norm behind an activation is: XNNPACK's kernel has
// vectors of four.
Changed<xnn_vmulcaddc_config> channel_kernels(const xnn_node& node, const xnn_value* values);

// While this is there, fully-connected layers are defined for rows as they are. On a processor with SME2
// XNNPACK packs the rows of every layer in float32 for a kernel of KleidiAI's, which takes weights that were
// packed before; a layer whose weights come when the program runs would read the packed rows as plain ones.
Changed<xnn_gemm_config> plain_rows();

// Kernels of depthwise convolutions in 8 bits, kByteDepthwiseKernels of them. Null on processors without
// AVX2.
const ByteDepthwise* byte_depthwise();

// The kernel that an operator calls; of a processor with several kinds of cores, that of the first. nullptr
// where it is no matrix product, linear layer or convolution.
void (*kernel_of(const xnn_operator& op))();
// The kernel's name when it is one of ours: "slipway_f32_gemm_12x32__avx512f"; otherwise empty.
std::string tile_name(void (*kernel)());

// Layers in 8 bits on processors with AMX, which XNNPACK computes with AMX alone.
//
// A call of an AMX kernel configures the processor's tiles, and a tile takes its time however few of its
// columns and channels the layer has. Kernels of AVX-512's VNNI compute narrow and shallow layers faster,
// with the same bits.

// Rows of a layer's result.
std::size_t rows_of(const xnn_value& value);
// Quantized to 8 bits with one scale or one for each channel.
bool is_bytes(const xnn_value& value);

// What a layer multiplies.
struct LayerProduct {
  std::size_t rows = 0;
  std::size_t columns = 0;  // of a group
  std::size_t pixels = 1;   // of a window
  std::size_t channels = 0;
  std::size_t groups = 1;

  std::size_t depth() const { return pixels * channels; }
};

// Nothing, without rows, for nodes that are no product.
LayerProduct product_of(const xnn_node& node, const xnn_value* values);
// The same of layers in 8 bits whose weights are constant.
LayerProduct byte_product(const xnn_node& node, const xnn_value* values);

// XNNPACK's table for products in 8 bits with VNNI's kernels, where these compute the node faster than AMX's;
// nullptr where they do not, or where XNNPACK has only one set of kernels for it.
Changed<xnn_gemm_config> vector_kernels(const xnn_node& node, const xnn_value* values);

// XNNPACK has kernels of two columns.
inline constexpr std::size_t kFewColumns = 2;

// The shape of the kernel that computes a product in float32: rows and columns that waste the least work.

enum class TileElement { kFloat, kHalf };

struct TileShape {
  std::size_t rows = 0;
  std::size_t vectors = 0;
};

// Processor cycles that a product of these sizes takes, by what a core does in one: two multiplications with
// addition and two loads of a vector. Good enough to compare shapes.
double cycles_of(const TileSet& set, TileShape shape, std::size_t rows, std::size_t columns,
                 std::size_t depth);

// The shape for a product. Columns depend on the weights' sizes alone: methods that run them with other
// numbers of rows share the packed weights.
TileShape choose_tile(const TileSet& set, TileElement element, std::size_t rows, std::size_t columns,
                      std::size_t depth);

// While it is there, layers of the graph that XNNPACK makes are given our kernels where we have some. Other
// threads wait.
class TileChoice {
 public:
  // `threads` pack the weights; nullptr: the caller alone.
  TileChoice(xnn_subgraph_t subgraph, PackedWeights* weights, pthreadpool_t threads);
  ~TileChoice();
  TileChoice(const TileChoice&) = delete;
  TileChoice& operator=(const TileChoice&) = delete;

 private:
  xnn_subgraph_t subgraph_;
  std::vector<void (*)()> originals_;  // how each node's operator is made
};

}  // namespace slipway::lean
