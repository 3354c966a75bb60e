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

#include <cstddef>
#include <string>

#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/tile_set.h"

struct xnn_node;
struct xnn_value;

namespace slipway::lean {

// The kernels that go with those of float_tiles(); nullptr where we have none.
const WinogradKernels* winograd_kernels(const TileSet* set);

// A convolution with 3x3 windows that lie side by side.
struct WinogradSizes {
  std::size_t batch = 0;
  std::size_t channels = 0;  // of the input
  std::size_t results = 0;   // channels of the output
  std::size_t height = 0;    // of the input
  std::size_t width = 0;
  std::size_t pixel = 0;  // elements from one pixel of the input to the next
  std::size_t result_height = 0;
  std::size_t result_width = 0;
  std::size_t result_pixel = 0;
  std::size_t top = 0;  // padding
  std::size_t left = 0;

  std::size_t tiles() const { return batch * ((result_height + 1) / 2) * ((result_width + 1) / 2); }
};

struct WinogradData {
  const float* input = nullptr;
  const float* zero = nullptr;  // a pixel of zeros
  const float* weights = nullptr;
  float* output = nullptr;
  float* work = nullptr;  // aligned as packed weights are
  float limits[2] = {};   // the least and the greatest result
};

// How a convolution's work is cut. Plain data: XNNPACK keeps it among an operator's.
struct WinogradPlan {
  WinogradSizes sizes;
  WinogradData data;
  const WinogradKernels* kernels;
  Gemm<float> multiply;
  std::size_t tile_rows;  // of the kernel
  std::size_t panel;      // columns of packed weights
  std::size_t strip;      // tiles that are multiplied together
  std::size_t row;        // elements from one transformed tile to the next
  std::size_t stride;     // from one of the 16 products' rows to the next one's
  std::size_t sum_stride;
  std::size_t group;            // panels that a task computes
  std::size_t input_elements;   // of a strip's transformed tiles
  std::size_t thread_elements;  // of all that a thread needs

  std::size_t panels() const { return (sizes.results + panel - 1) / panel; }
  std::size_t strips() const { return (sizes.tiles() + strip - 1) / strip; }
  std::size_t groups() const { return (panels() + group - 1) / group; }
};

// The kernel for products in columns of a convolution's transformed weights. Its columns depend on the
// weights alone.
TileShape winograd_tile(const TileSet& set, std::size_t tiles, std::size_t channels, std::size_t results);

// Processor cycles that a convolution takes, as cycles_of() counts them, and whether they are fewer than
// those of sums over windows. Of the sizes, the results' and the channels count.
double winograd_cycles(const TileSet& set, const WinogradSizes& sizes);
bool winograd_pays(const TileSet& set, const WinogradSizes& sizes);

// For sizes that winograd_pays() accepted once.
WinogradPlan plan_winograd(const TileSet& set, const WinogradKernels& kernels, const WinogradSizes& sizes,
                           std::size_t panel, std::size_t threads);

// Elements of packed weights.
std::size_t winograd_packed_elements(std::size_t channels, std::size_t results, std::size_t panel);

// Packs panels `first` to before `last` of weights [results, 3, 3, channels]. `bias` may be nullptr.
void pack_winograd(const TileSet& set, const WinogradKernels& kernels, std::size_t channels,
                   std::size_t results, std::size_t panel, const float* weights, const float* bias,
                   float* packed, std::size_t first, std::size_t last);

// A plan's task, one of strips() times groups(). Each thread has thread_elements of the plan's work.
void winograd_block(void* plan, std::size_t thread, std::size_t strip, std::size_t group);

// Convolutions of XNNPACK's that are computed so.

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
