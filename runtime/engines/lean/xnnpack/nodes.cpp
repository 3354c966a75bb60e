// One function a kind of node: the exporter's table to XNNPACK's call.
#include <cmath>
#include <limits>

#include "lean/xnnpack/given_layer.h"
#include "lean/xnnpack/graph_builder.h"

namespace slipway::lean {
namespace {

struct Range {
  float min = -std::numeric_limits<float>::infinity();
  float max = std::numeric_limits<float>::infinity();
};

Range range_of(const xnn::XNode& node) {
  const xnn::OutputMinMax* range = node.output_min_max();
  return range == nullptr ? Range() : Range{range->output_min(), range->output_max()};
}

// A node in the making: turns the exporter's ids into XNNPACK's and remembers when one was missing.
class Ids {
 public:
  explicit Ids(const GraphBuilder& graph) : graph_(graph) {}

  std::uint32_t operator()(std::uint32_t exported) { return take(graph_.use(exported)); }
  // After the node's inputs.
  std::uint32_t output(std::uint32_t exported) { return take(graph_.claim(exported)); }
  std::uint32_t optional(std::uint32_t exported) {
    return exported == XNN_INVALID_VALUE_ID ? XNN_INVALID_VALUE_ID : (*this)(exported);
  }
  bool good() const { return good_; }

 private:
  std::uint32_t take(const GraphValue* value) {
    good_ = good_ && value != nullptr;
    return value == nullptr ? XNN_INVALID_VALUE_ID : value->id;
  }

  const GraphBuilder& graph_;
  bool good_ = true;
};

std::vector<std::size_t> sizes_of(const flatbuffers::Vector<std::uint32_t>* items) {
  return items == nullptr ? std::vector<std::size_t>()
                          : std::vector<std::size_t>(items->begin(), items->end());
}

// Whether a layer's weights and bias have the sizes that its channels ask for: XNNPACK trusts it.
bool fits(const GraphBuilder& graph, std::uint32_t filter, std::uint32_t bias, std::size_t filter_count,
          std::size_t outputs) {
  const GraphValue* weights = graph.find(filter);
  if (weights == nullptr) {
    return false;
  }
  std::size_t count = 1;
  for (const std::size_t dim : weights->dims) {
    count *= dim;
  }
  if (bias == XNN_INVALID_VALUE_ID) {
    return count == filter_count;
  }
  // Exporters leave sizes of 1 before the bias's own.
  const GraphValue* offsets = graph.find(bias);
  std::size_t biases = offsets == nullptr || offsets->dims.empty() ? 0 : 1;
  for (std::size_t i = 0; biases != 0 && i < offsets->dims.size(); ++i) {
    const bool last = i + 1 == offsets->dims.size();
    biases = last ? offsets->dims[i] : (offsets->dims[i] == 1 ? 1 : 0);
  }
  return count == filter_count && biases == outputs;
}

xnn_status unary(const GraphBuilder& graph, const xnn::_XNNNode1x1& node, xnn_unary_operator type,
                 const xnn_unary_params* params = nullptr) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  return id.good() ? xnn_define_unary(graph.subgraph(), type, params, input, output, node.flags())
                   : xnn_status_invalid_parameter;
}

xnn_status binary(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNode2x1& node,
                  xnn_binary_operator type) {
  Ids id(graph);
  const std::uint32_t first = id(node.input1_id());
  const std::uint32_t second = id(node.input2_id());
  const std::uint32_t output = id.output(node.output_id());
  const Range range = range_of(outer);
  const xnn_binary_params params{range.min, range.max};
  return id.good() ? xnn_define_binary(graph.subgraph(), type, &params, first, second, output, node.flags())
                   : xnn_status_invalid_parameter;
}

// XNNPACK's own flags of a conversion whose result only 4-bit layers read: on a processor with KleidiAI's
// kernels for them, it is made in these kernels' packed form (src/xnnpack/internal.h of the pinned XNNPACK).
constexpr std::uint32_t kMaybePackForQc4w = 0x80;
constexpr std::uint32_t kMaybePackForQb4w = 0x100;

xnn_status convert(const GraphBuilder& graph, const xnn::_XNNNode1x1& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  if (!id.good()) {
    return xnn_status_invalid_parameter;
  }
  const xnn_datatype from = graph.find(node.input_id())->datatype;
  if (from == xnn_datatype_fp32 && from == graph.find(node.output_id())->datatype) {
    return xnn_define_copy(graph.subgraph(), input, output, 0);  // from or to what was widened
  }
  std::uint32_t flags = node.flags() & ~(kMaybePackForQc4w | kMaybePackForQb4w);
  if (graph.feeds_only(node.output_id(), xnn_datatype_qcint4)) {
    flags |= kMaybePackForQc4w;
  } else if (graph.feeds_only(node.output_id(), xnn_datatype_qbint4)) {
    flags |= kMaybePackForQb4w;
  }
  return xnn_define_unary(graph.subgraph(), xnn_unary_convert, nullptr, input, output, flags);
}

xnn_status clamp(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNode1x1& node) {
  xnn_unary_params params;
  params.clamp.min = range_of(outer).min;
  params.clamp.max = range_of(outer).max;
  return unary(graph, node, xnn_unary_clamp, &params);
}

template <typename Node>
xnn_status with_slope(const GraphBuilder& graph, const Node& node, xnn_unary_operator type,
                      const xnn_unary_params& params) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  return id.good() ? xnn_define_unary(graph.subgraph(), type, &params, input, output, node.flags())
                   : xnn_status_invalid_parameter;
}

xnn_status elu(const GraphBuilder& graph, const xnn::XNNELU& node) {
  xnn_unary_params params;
  params.elu.alpha = node.alpha();
  return with_slope(graph, node, xnn_unary_elu, params);
}

xnn_status leaky_relu(const GraphBuilder& graph, const xnn::XNNLeakyReLU& node) {
  xnn_unary_params params;
  params.leaky_relu.negative_slope = node.negative_slope();
  return with_slope(graph, node, xnn_unary_leaky_relu, params);
}

xnn_status softmax(const GraphBuilder& graph, const xnn::_XNNNode1x1& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  return id.good() ? xnn_define_softmax(graph.subgraph(), input, output, node.flags())
                   : xnn_status_invalid_parameter;
}

xnn_status copy(const GraphBuilder& graph, const xnn::_XNNNode1x1& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  return id.good() ? xnn_define_copy(graph.subgraph(), input, output, node.flags())
                   : xnn_status_invalid_parameter;
}

// The mean over height and width, in NHWC.
xnn_status global_average(const GraphBuilder& graph, const xnn::_XNNNode1x1& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  if (!id.good() || graph.find(node.input_id())->dims.size() < 3) {
    return xnn_status_invalid_parameter;
  }
  const std::size_t rank = graph.find(node.input_id())->dims.size();
  const std::size_t axes[] = {rank - 3, rank - 2};
  const bool keep = graph.find(node.output_id())->dims.size() == rank;
  return xnn_define_static_reduce(graph.subgraph(), xnn_reduce_mean, 2, axes, input, output,
                                  keep ? XNN_FLAG_KEEP_DIMS : 0);
}

xnn_status fully_connected(const GraphBuilder& graph, const xnn::XNode& outer,
                           const xnn::XNNFullyConnected& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input1_id());
  std::uint32_t filter = id(node.filter_id());
  std::uint32_t bias = id.optional(node.bias_id());
  const std::uint32_t output = id.output(node.output_id());
  if (!id.good() || graph.find(node.filter_id())->dims.size() != 2) {
    return xnn_status_invalid_parameter;
  }
  const std::vector<std::size_t>& dims = graph.find(node.filter_id())->dims;
  const std::size_t outputs = dims[(node.flags() & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0 ? 1 : 0];
  if (!fits(graph, node.filter_id(), node.bias_id(), dims[0] * dims[1], outputs)) {
    return xnn_status_invalid_parameter;
  }
  const Range range = range_of(outer);
  const GraphValue* offsets = graph.find(node.bias_id());
  if (graph.find(node.filter_id())->constant && (offsets == nullptr || offsets->constant)) {
    return xnn_define_fully_connected(graph.subgraph(), range.min, range.max, input, filter, bias, output,
                                      node.flags());
  }
  const std::size_t along = (node.flags() & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0 ? 0 : 1;
  const std::size_t rank = graph.find(node.input1_id())->dims.size();
  if (rank == 0) {
    return xnn_status_invalid_parameter;
  }
  GivenLayer given(graph, dims[along]);
  std::uint32_t rows = input;
  given.take_padded(node.input1_id(), &rows, rank - 1);
  given.take_padded(node.filter_id(), &filter, along);
  given.take(node.bias_id(), &bias);
  return given.define({range.min, range.max}, rows, filter, bias, output, node.output_id(), node.flags());
}

// What the three kinds of convolution have in common.
struct Layer {
  Layer(const GraphBuilder& graph, const xnn::_XNNNodeConv& node) : id(graph) {
    input = id(node.input1_id());
    filter = id(node.filter_id());
    bias = id.optional(node.bias_id());
    output = id.output(node.output_id());
    const std::size_t kernel = std::size_t{node.kernel_height()} * node.kernel_width();
    const std::size_t outputs = std::size_t{node.groups()} * node.group_output_channels();
    good = id.good() && fits(graph, node.filter_id(), node.bias_id(),
                             outputs * kernel * node.group_input_channels(), outputs);
  }

  Ids id;
  std::uint32_t input, filter, bias, output;
  bool good = false;
};

xnn_status convolution(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNodeConv& node) {
  const Layer layer(graph, node);
  const Range range = range_of(outer);
  return !layer.good
             ? xnn_status_invalid_parameter
             : xnn_define_convolution_2d(
                   graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(),
                   node.padding_left(), node.kernel_height(), node.kernel_width(), node.subsampling_height(),
                   node.subsampling_width(), node.dilation_height(), node.dilation_width(), node.groups(),
                   node.group_input_channels(), node.group_output_channels(), range.min, range.max,
                   layer.input, layer.filter, layer.bias, layer.output, node.flags());
}

// One input channel a group.
xnn_status depthwise(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNodeConv& node) {
  const Layer layer(graph, node);
  const Range range = range_of(outer);
  if (!layer.good || node.group_input_channels() != 1) {
    return xnn_status_invalid_parameter;
  }
  return xnn_define_depthwise_convolution_2d(
      graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(), node.padding_left(),
      node.kernel_height(), node.kernel_width(), node.subsampling_height(), node.subsampling_width(),
      node.dilation_height(), node.dilation_width(), node.group_output_channels(), node.groups(), range.min,
      range.max, layer.input, layer.filter, layer.bias, layer.output, node.flags());
}

xnn_status transposed(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNodeConv& node) {
  const Layer layer(graph, node);
  const Range range = range_of(outer);
  return !layer.good
             ? xnn_status_invalid_parameter
             : xnn_define_deconvolution_2d(
                   graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(),
                   node.padding_left(), node.adjustment_height(), node.adjustment_width(),
                   node.kernel_height(), node.kernel_width(), node.subsampling_height(),
                   node.subsampling_width(), node.dilation_height(), node.dilation_width(), node.groups(),
                   node.group_input_channels(), node.group_output_channels(), range.min, range.max,
                   layer.input, layer.filter, layer.bias, layer.output, node.flags());
}

xnn_status average_pooling(const GraphBuilder& graph, const xnn::XNode& outer,
                           const xnn::_XNNPooling2D& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  const Range range = range_of(outer);
  return !id.good()
             ? xnn_status_invalid_parameter
             : xnn_define_average_pooling_2d(
                   graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(),
                   node.padding_left(), node.pooling_height(), node.pooling_width(), node.stride_height(),
                   node.stride_width(), range.min, range.max, input, output, node.flags());
}

xnn_status max_pooling(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNPooling2D& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  const Range range = range_of(outer);
  return !id.good() ? xnn_status_invalid_parameter
                    : xnn_define_max_pooling_2d(
                          graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(),
                          node.padding_left(), node.pooling_height(), node.pooling_width(),
                          node.stride_height(), node.stride_width(), node.dilation_height(),
                          node.dilation_width(), range.min, range.max, input, output, node.flags());
}

xnn_status argmax_pooling(const GraphBuilder& graph, const xnn::XNNArgMaxPooling2d& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t value = id.output(node.output_value_id());
  const std::uint32_t index = id.output(node.output_index_id());
  return !id.good()
             ? xnn_status_invalid_parameter
             : xnn_define_argmax_pooling_2d(graph.subgraph(), node.padding_top(), node.padding_right(),
                                            node.padding_bottom(), node.padding_left(), node.pooling_height(),
                                            node.pooling_width(), input, value, index, node.flags());
}

// Nodes with lists of sizes name as many as their input has dimensions.
xnn_status transpose(const GraphBuilder& graph, const xnn::XNNStaticTranspose& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  const std::vector<std::size_t> order = sizes_of(node.perm());
  if (!id.good() || order.size() != node.num_dims() ||
      order.size() != graph.find(node.input_id())->dims.size()) {
    return xnn_status_invalid_parameter;
  }
  return xnn_define_static_transpose(graph.subgraph(), order.size(), order.data(), input, output,
                                     node.flags());
}

xnn_status slice(const GraphBuilder& graph, const xnn::XNNStaticSlice& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  const std::vector<std::size_t> offsets = sizes_of(node.offsets());
  const std::vector<std::size_t> sizes = sizes_of(node.sizes());
  if (!id.good() || offsets.size() != node.num_dims() || sizes.size() != offsets.size() ||
      offsets.size() != graph.find(node.input_id())->dims.size()) {
    return xnn_status_invalid_parameter;
  }
  return xnn_define_static_slice(graph.subgraph(), sizes.size(), offsets.data(), sizes.data(), input, output,
                                 node.flags());
}

xnn_status reshape(const GraphBuilder& graph, const xnn::XNNStaticReshape& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  const std::vector<std::size_t> sizes = sizes_of(node.new_shape());
  if (!id.good() || sizes.size() != node.num_dims() || sizes.size() > XNN_MAX_TENSOR_DIMS) {
    return xnn_status_invalid_parameter;
  }
  return xnn_define_static_reshape(graph.subgraph(), sizes.size(), sizes.data(), input, output, node.flags());
}

xnn_status resize_bilinear(const GraphBuilder& graph, const xnn::XNNStaticResizeBilinear2D& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  return !id.good() ? xnn_status_invalid_parameter
                    : xnn_define_static_resize_bilinear_2d(graph.subgraph(), node.new_height(),
                                                           node.new_width(), input, output, node.flags());
}

xnn_status pad(const GraphBuilder& graph, const xnn::XNNStaticConstantPad& node) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  const std::vector<std::size_t> before = sizes_of(node.pre_paddings());
  const std::vector<std::size_t> after = sizes_of(node.post_paddings());
  if (!id.good() || before.size() != after.size() ||
      before.size() != graph.find(node.input_id())->dims.size()) {
    return xnn_status_invalid_parameter;
  }
  return xnn_define_static_constant_pad(graph.subgraph(), before.data(), after.data(), node.padding_value(),
                                        input, output, node.flags());
}

xnn_status concatenate(const GraphBuilder& graph, const xnn::_XNNCat& node, int count) {
  Ids id(graph);
  const std::uint32_t one = id(node.input1_id());
  const std::uint32_t two = id(node.input2_id());
  const std::uint32_t three = count > 2 ? id(node.input3_id()) : XNN_INVALID_VALUE_ID;
  const std::uint32_t four = count > 3 ? id(node.input4_id()) : XNN_INVALID_VALUE_ID;
  const std::uint32_t five = count > 4 ? id(node.input5_id()) : XNN_INVALID_VALUE_ID;
  const std::uint32_t output = id.output(node.output_id());
  const auto axis = static_cast<std::int32_t>(node.axis());
  if (!id.good()) {
    return xnn_status_invalid_parameter;
  }
  xnn_subgraph_t subgraph = graph.subgraph();
  switch (count) {
    case 2:
      return xnn_define_concatenate2(subgraph, axis, one, two, output, node.flags());
    case 3:
      return xnn_define_concatenate3(subgraph, axis, one, two, three, output, node.flags());
    case 4:
      return xnn_define_concatenate4(subgraph, axis, one, two, three, four, output, node.flags());
    default:
      return xnn_define_concatenate5(subgraph, axis, one, two, three, four, five, output, node.flags());
  }
}

xnn_status attention(const GraphBuilder& graph, const xnn::XNNScaledDotProductAttention& node) {
  Ids id(graph);
  const std::uint32_t query = id(node.query_id());
  const std::uint32_t key = id(node.key_id());
  const std::uint32_t value = id(node.value_id());
  const std::uint32_t scale = id(node.scale_id());
  const std::uint32_t mask = id(node.mask_id());
  const std::uint32_t output = id.output(node.output_id());
  return !id.good() ? xnn_status_invalid_parameter
                    : xnn_define_scaled_dot_product_attention(
                          graph.subgraph(), xnn_attention_logits_cap_type_none, nullptr, query, key, value,
                          scale, mask, output, node.flags());
}

xnn_status batch_matrix_multiply(const GraphBuilder& graph, const xnn::_XNNNode2x1& node) {
  Ids id(graph);
  const std::uint32_t first = id(node.input1_id());
  const std::uint32_t second = id(node.input2_id());
  const std::uint32_t output = id.output(node.output_id());
  return !id.good() ? xnn_status_invalid_parameter
                    : xnn_define_batch_matrix_multiply(graph.subgraph(), first, second, output, node.flags());
}

struct UnaryRow {
  xnn::XNodeUnion node;
  xnn_unary_operator type;
};

constexpr UnaryRow kUnary[] = {
    {xnn::XNodeUnion::XNNSigmoid, xnn_unary_sigmoid},
    {xnn::XNodeUnion::XNNFloor, xnn_unary_floor},
    {xnn::XNodeUnion::XNNSquareRoot, xnn_unary_square_root},
    {xnn::XNodeUnion::XNNCeiling, xnn_unary_ceiling},
    {xnn::XNodeUnion::XNNHardswish, xnn_unary_hardswish},
    {xnn::XNodeUnion::XNNNegate, xnn_unary_negate},
    {xnn::XNodeUnion::XNNSquare, xnn_unary_square},
    {xnn::XNodeUnion::XNNAbs, xnn_unary_abs},
    {xnn::XNodeUnion::XNNReciprocalSquareRoot, xnn_unary_reciprocal_square_root},
    {xnn::XNodeUnion::XNNLog, xnn_unary_log},
    {xnn::XNodeUnion::XNNGelu, xnn_unary_gelu},
    {xnn::XNodeUnion::XNNTanh, xnn_unary_tanh},
    {xnn::XNodeUnion::XNNExp, xnn_unary_exp},
    {xnn::XNodeUnion::XNNSin, xnn_unary_sine},
    {xnn::XNodeUnion::XNNCos, xnn_unary_cosine},
};

struct BinaryRow {
  xnn::XNodeUnion node;
  xnn_binary_operator type;
};

constexpr BinaryRow kBinary[] = {
    {xnn::XNodeUnion::XNNAdd, xnn_binary_add},           {xnn::XNodeUnion::XNNSubtract, xnn_binary_subtract},
    {xnn::XNodeUnion::XNNMultiply, xnn_binary_multiply}, {xnn::XNodeUnion::XNNDiv, xnn_binary_divide},
    {xnn::XNodeUnion::XNNMinimum, xnn_binary_minimum},   {xnn::XNodeUnion::XNNMaximum, xnn_binary_maximum},
    {xnn::XNodeUnion::XNNPReLU, xnn_binary_prelu},
};

}  // namespace

xnn_status define_xnn_node(const GraphBuilder& graph, const xnn::XNode& node) {
  const xnn::XNodeUnion kind = node.xnode_union_type();
  const void* table = node.xnode_union();
  if (table == nullptr) {
    return xnn_status_invalid_parameter;
  }
  for (const UnaryRow& row : kUnary) {
    if (row.node == kind) {
      return unary(graph, *static_cast<const xnn::_XNNNode1x1*>(table), row.type);
    }
  }
  for (const BinaryRow& row : kBinary) {
    if (row.node == kind) {
      return binary(graph, node, *static_cast<const xnn::_XNNNode2x1*>(table), row.type);
    }
  }
  switch (kind) {
    case xnn::XNodeUnion::XNNFullyConnected:
      return fully_connected(graph, node, *node.xnode_union_as_XNNFullyConnected());
    case xnn::XNodeUnion::XNNConv2d:
      return convolution(graph, node, *node.xnode_union_as_XNNConv2d());
    case xnn::XNodeUnion::XNNDepthwiseConv2d:
      return depthwise(graph, node, *node.xnode_union_as_XNNDepthwiseConv2d());
    case xnn::XNodeUnion::XNNConvTranspose2d:
      return transposed(graph, node, *node.xnode_union_as_XNNConvTranspose2d());
    case xnn::XNodeUnion::XNNSoftmax:
      return softmax(graph, *node.xnode_union_as_XNNSoftmax());
    case xnn::XNodeUnion::XNNClamp:
      return clamp(graph, node, *node.xnode_union_as_XNNClamp());
    case xnn::XNodeUnion::XNNConvert:
      return convert(graph, *node.xnode_union_as_XNNConvert());
    case xnn::XNodeUnion::XNNCopy:
      return copy(graph, *node.xnode_union_as_XNNCopy());
    case xnn::XNodeUnion::XNNGlobalAvgPooling2d:
      return global_average(graph, *node.xnode_union_as_XNNGlobalAvgPooling2d());
    case xnn::XNodeUnion::XNNAvgPooling2d:
      return average_pooling(graph, node, *node.xnode_union_as_XNNAvgPooling2d());
    case xnn::XNodeUnion::XNNMaxPooling2d:
      return max_pooling(graph, node, *node.xnode_union_as_XNNMaxPooling2d());
    case xnn::XNodeUnion::XNNArgMaxPooling2d:
      return argmax_pooling(graph, *node.xnode_union_as_XNNArgMaxPooling2d());
    case xnn::XNodeUnion::XNNELU:
      return elu(graph, *node.xnode_union_as_XNNELU());
    case xnn::XNodeUnion::XNNLeakyReLU:
      return leaky_relu(graph, *node.xnode_union_as_XNNLeakyReLU());
    case xnn::XNodeUnion::XNNStaticTranspose:
      return transpose(graph, *node.xnode_union_as_XNNStaticTranspose());
    case xnn::XNodeUnion::XNNStaticSlice:
      return slice(graph, *node.xnode_union_as_XNNStaticSlice());
    case xnn::XNodeUnion::XNNStaticReshape:
      return reshape(graph, *node.xnode_union_as_XNNStaticReshape());
    case xnn::XNodeUnion::XNNStaticResizeBilinear2D:
      return resize_bilinear(graph, *node.xnode_union_as_XNNStaticResizeBilinear2D());
    case xnn::XNodeUnion::XNNStaticConstantPad:
      return pad(graph, *node.xnode_union_as_XNNStaticConstantPad());
    case xnn::XNodeUnion::XNNConcatenate2:
      return concatenate(graph, *node.xnode_union_as_XNNConcatenate2(), 2);
    case xnn::XNodeUnion::XNNConcatenate3:
      return concatenate(graph, *node.xnode_union_as_XNNConcatenate3(), 3);
    case xnn::XNodeUnion::XNNConcatenate4:
      return concatenate(graph, *node.xnode_union_as_XNNConcatenate4(), 4);
    case xnn::XNodeUnion::XNNConcatenate5:
      return concatenate(graph, *node.xnode_union_as_XNNConcatenate5(), 5);
    case xnn::XNodeUnion::XNNScaledDotProductAttention:
      return attention(graph, *node.xnode_union_as_XNNScaledDotProductAttention());
    case xnn::XNodeUnion::XNNBatchMatrixMultiply:
      return batch_matrix_multiply(graph, *node.xnode_union_as_XNNBatchMatrixMultiply());
    default:
      return xnn_status_unsupported_parameter;
  }
}

}  // namespace slipway::lean
