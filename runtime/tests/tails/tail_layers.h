// Layers of whole numbers with results that are known exactly: whatever rows, columns or depth a kernel's
// tiles leave over, a wrong result is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lean/data/evalue.h"
#include "lean/method/delegate.h"
#include "xnnpack_runtime_generated.h"

namespace tails {

using Type = slipway::xnn::XNNDatatype;

enum class Kind : std::uint8_t { kConnected, kConvolution, kDepthwise, kTransposed, kBatch };

// What the graph says of a layer's tensors.
struct Types {
  const char* name;
  Type input;  // dynamic layers: before it is quantized
  Type filter;
  Type bias;
  Type output;
  bool dynamic = false;
  std::size_t block = 0;  // of weights in 4 bits
};

// Products are convolutions of 1x1 windows over images of one line: `width` is their number of rows.
struct Layer {
  Kind kind = Kind::kConnected;
  const Types* types = nullptr;
  std::size_t width = 1;  // of an image
  std::size_t columns = 1;
  std::size_t depth = 1;
  std::size_t batch = 1;
  std::size_t height = 1;
  std::size_t groups = 1;
  std::uint32_t window_height = 1;
  std::uint32_t window_width = 1;
  std::uint32_t down = 1;
  std::uint32_t across = 1;
  std::uint32_t dilation = 1;
  std::uint32_t padding = 0;    // on all sides
  bool given = false;           // weights and bias come with the call
  bool weights_across = false;  // [depth, columns], and of a batch [columns, depth]
  bool with_bias = true;

  std::size_t taps() const { return std::size_t{window_height} * window_width; }
  std::size_t results() const { return groups * columns; }  // channels
  std::size_t rows_out() const;
  std::size_t columns_out() const;
  std::size_t pixels() const { return batch * rows_out() * columns_out(); }
  // Whether rows, or pixels, are quantized by themselves, and not whole images.
  bool quantized_by_rows() const;
  std::string text() const;
};

enum class Range : std::uint8_t { kAll, kBetween, kPositive };

// The tensors' bytes as the graph has them, and what has to come out.
struct Data {
  std::vector<std::uint8_t> input, filter, bias;
  std::vector<std::uint8_t> block_scales;
  std::vector<float> scales;  // of the filter's channels
  float input_scale = 1;
  float output_scale = 1;
  std::int32_t input_zero = 0;
  std::int32_t filter_zero = 0;
  std::int32_t output_zero = 0;
  float low = 0, high = 0;
  std::vector<double> expected;  // of each result, before it is rounded
  double spread = 1;             // how far results lie apart
};

Data make_data(const Layer& layer, std::uint32_t seed);

// The payload of a delegate that computes the layer: input 0, with weights that are given 1 and 2, then the
// output.
std::vector<std::uint8_t> make_payload(const Layer& layer, const Data& data);

// Sizes of the graph's tensors.
std::vector<std::uint32_t> input_dims(const Layer& layer);
std::vector<std::uint32_t> filter_dims(const Layer& layer);
std::vector<std::uint32_t> output_dims(const Layer& layer);
std::size_t element_size(Type type);

// The first result that is wrong, and how; empty if all are right. A layer of fewer rows has the first
// results.
std::string wrong_result(const Layer& layer, const Data& data, const std::uint8_t* results);

// XNNPACK without the features that this run leaves out (SLIPWAY_TESTS_WITHOUT).
struct TailBench {
  TailBench();

  slipway::lean::XnnContext alone;
  slipway::lean::XnnContext together;
};

TailBench& tail_bench();

// A tensor of that type and shape at `data`; it may become smaller.
slipway::lean::TensorView view_of(Type type, const std::vector<std::uint32_t>& dims, std::uint8_t* data);

// SLIPWAY_TESTS_TAILS: "all" for six rounds of different sizes; a number, for one of so many layers.
struct Amount {
  std::size_t rounds = 1;
  std::size_t every = 1;
};

Amount how_much();

}  // namespace tails
