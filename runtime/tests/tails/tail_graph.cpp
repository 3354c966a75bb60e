#include <cstdlib>

#include "base/text.h"
#include "check.h"
#include "lean/graph_maker.h"
#include "lean/views.h"
#include "tail_layers.h"

using namespace slipway;
using namespace slipway::lean;
using slipway::xnn::XNodeUnion;

namespace tails {
namespace {

using Sizes = std::vector<std::uint32_t>;

std::uint32_t small(std::size_t number) {
  return static_cast<std::uint32_t>(number);
}

XNodeUnion node_of(Kind kind) {
  constexpr XNodeUnion kNodes[] = {XNodeUnion::XNNFullyConnected, XNodeUnion::XNNConv2d,
                                   XNodeUnion::XNNDepthwiseConv2d, XNodeUnion::XNNConvTranspose2d,
                                   XNodeUnion::XNNBatchMatrixMultiply};
  return kNodes[static_cast<std::size_t>(kind)];
}

// The filter's dimension that has scales.
std::int32_t channel_dim(const Layer& layer) {
  const bool batch = layer.kind == Kind::kBatch;
  const bool last = layer.kind == Kind::kDepthwise || layer.weights_across != batch;
  const auto rank = static_cast<std::int32_t>(filter_dims(layer).size());
  return last ? rank - 1 : (batch ? rank - 2 : 0);
}

Sizes dims_of(const Layer& layer, std::size_t height, std::size_t width, std::size_t channels) {
  switch (layer.kind) {
    case Kind::kConnected:
      return {small(layer.width), small(channels)};
    case Kind::kBatch:
      return {small(layer.batch), small(layer.width), small(channels)};
    default:
      return {small(layer.batch), small(height), small(width), small(channels)};
  }
}

constexpr unsigned kThreads = 3;

const char* environment_or(const char* name, const char* otherwise) {
  const char* found = std::getenv(name);
  return found == nullptr ? otherwise : found;
}

}  // namespace

std::vector<std::uint32_t> input_dims(const Layer& layer) {
  return dims_of(layer, layer.height, layer.width, layer.groups * layer.depth);
}

std::vector<std::uint32_t> filter_dims(const Layer& layer) {
  const std::uint32_t columns = small(layer.columns);
  const std::uint32_t depth = small(layer.depth);
  switch (layer.kind) {
    case Kind::kConnected:
      return layer.weights_across ? Sizes{depth, columns} : Sizes{columns, depth};
    case Kind::kBatch: {
      const std::uint32_t batch = layer.types->dynamic ? 1 : small(layer.batch);
      return layer.weights_across ? Sizes{batch, columns, depth} : Sizes{batch, depth, columns};
    }
    case Kind::kDepthwise:
      return {1, layer.window_height, layer.window_width, small(layer.results())};
    default:
      return {small(layer.results()), layer.window_height, layer.window_width, depth};
  }
}

std::vector<std::uint32_t> output_dims(const Layer& layer) {
  return dims_of(layer, layer.rows_out(), layer.columns_out(), layer.results());
}

std::size_t element_size(Type type) {
  switch (type) {
    case Type::xnn_datatype_fp32:
    case Type::xnn_datatype_qint32:
    case Type::xnn_datatype_qcint32:
      return 4;
    case Type::xnn_datatype_fp16:
      return 2;
    default:
      return 1;
  }
}

std::vector<std::uint8_t> make_payload(const Layer& layer, const Data& data) {
  using Role = ValueRecipe::Role;
  const Types& types = *layer.types;
  const Role role = layer.given ? Role::kInput : Role::kConstant;
  const bool rows = layer.kind == Kind::kConnected || layer.kind == Kind::kBatch;
  const std::uint32_t side = layer.padding;
  GraphRecipe recipe;
  recipe.kind = node_of(layer.kind);
  recipe.flags = layer.weights_across ? 1 : 0;  // XNN_FLAG_TRANSPOSE_WEIGHTS and XNN_FLAG_TRANSPOSE_B
  recipe.no_bias = !layer.with_bias;
  recipe.range = {data.low, data.high};
  recipe.quantized_by = types.dynamic ? (rows ? 1 : 3) : 0;
  recipe.parameters = {side,
                       side,
                       side,
                       side,
                       layer.window_height,
                       layer.window_width,
                       layer.down,
                       layer.across,
                       layer.dilation,
                       layer.dilation,
                       small(layer.depth),
                       small(layer.columns),
                       small(layer.groups)};
  recipe.values.push_back({types.input, input_dims(layer), Role::kInput, data.input_scale, data.input_zero});
  const float scale = data.scales.empty() ? 1 : data.scales[0];
  ValueRecipe filter{types.filter,
                     filter_dims(layer),
                     role,
                     scale,
                     data.filter_zero,
                     channel_dim(layer),
                     static_cast<std::int32_t>(types.block)};
  filter.bytes = data.filter;
  filter.scales = data.scales;
  filter.block_scales = data.block_scales;
  recipe.values.push_back(filter);
  if (layer.with_bias) {
    ValueRecipe bias{types.bias, {small(layer.results())}, role, scale * data.input_scale};
    bias.bytes = data.bias;
    for (const float one : data.scales) {
      bias.scales.push_back(one * data.input_scale);
    }
    recipe.values.push_back(bias);
  }
  recipe.values.push_back(
      {types.output, output_dims(layer), Role::kOutput, data.output_scale, data.output_zero});
  return make_graph(recipe);
}

TailBench::TailBench() {
  KernelLimits limits;
  const std::string left_out = environment_or("SLIPWAY_TESTS_WITHOUT", "");
  for (const std::string_view name : pieces(left_out, ",")) {
    if (name == "kleidiai") {
      limits.kleidiai = false;
    } else {
      limits.unused_features.emplace_back(name);
    }
  }
  for (XnnContext* context : {&alone, &together}) {
    context->limit(limits);
    CHECK(context->start().ok());
  }
  CHECK(together.set_threads(kThreads).value() == kThreads);
}

TailBench& tail_bench() {
  static TailBench only;
  return only;
}

TensorView view_of(Type type, const std::vector<std::uint32_t>& dims, std::uint8_t* data) {
  TensorView view = view_at(dtype_of_value(to_xnn(type)), Shape(dims.begin(), dims.end()), data);
  view.dynamism = Dynamism::kBounded;
  return view;
}

Amount how_much() {
  const std::string found = environment_or("SLIPWAY_TESTS_TAILS", "1");
  if (found == "all") {
    return {6, 1};
  }
  return {1, std::max<std::size_t>(std::strtoul(found.c_str(), nullptr, 10), 1)};
}

}  // namespace tails
