// From the exporter's nodes to XNNPACK's calls. The graph was checked before (GraphCheck): what a node names
// is there, has one writer, and has the sizes that the node takes. XNNPACK trusts that.
#include <xnnpack/subgraph.h>

#include <cmath>
#include <limits>

#include "lean/xnnpack/graph_builder.h"
#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {

// A node to define: its values by XNNPACK's ids, in the order of its Operands; no bias is an invalid id.
struct NodeCall {
  NodeCall(const GraphBuilder& builder, const GraphNode& checked)
      : graph(builder), outer(*checked.node), values(checked.operands), to(builder.subgraph()) {
    for (std::size_t i = 0; i < values.input_count; ++i) {
      in[i] = graph.id_of(values.inputs[i]);
    }
    for (std::size_t i = 0; i < values.output_count; ++i) {
      out[i] = graph.id_of(values.outputs[i]);
    }
    if (const xnn::OutputMinMax* range = outer.output_min_max()) {
      min = range->output_min();
      max = range->output_max();
    }
  }

  template <typename Table>
  const Table& table() const {
    return *static_cast<const Table*>(outer.xnode_union());
  }
  const GraphFact& input(std::size_t i) const { return graph.fact(values.inputs[i]); }
  xnn_status unary(xnn_unary_operator type, std::uint32_t flags,
                   const xnn_unary_params* params = nullptr) const {
    return xnn_define_unary(to, type, params, in[0], out[0], flags);
  }
  xnn_status clamp(std::uint32_t flags) const {
    xnn_unary_params params{};
    params.clamp.min = min;
    params.clamp.max = max;
    return unary(xnn_unary_clamp, flags, &params);
  }

  const GraphBuilder& graph;
  const xnn::XNode& outer;
  const Operands& values;  // by their indices
  const xnn_subgraph_t to;
  std::uint32_t in[kMostInputs] = {};
  std::uint32_t out[kMostOutputs] = {};
  float min = -std::numeric_limits<float>::infinity();
  float max = std::numeric_limits<float>::infinity();
};

namespace {

using Kind = xnn::XNodeUnion;

template <xnn_unary_operator kType>
xnn_status define_unary(const NodeCall& it) {
  return it.unary(kType, it.table<xnn::_XNNNode1x1>().flags());
}

xnn_status define_clamp(const NodeCall& it) {
  return it.clamp(it.table<xnn::_XNNNode1x1>().flags());
}

xnn_status define_elu(const NodeCall& it) {
  xnn_unary_params params;
  params.elu.alpha = it.table<xnn::XNNELU>().alpha();
  return it.unary(xnn_unary_elu, it.table<xnn::XNNELU>().flags(), &params);
}

xnn_status define_leaky_relu(const NodeCall& it) {
  xnn_unary_params params;
  params.leaky_relu.negative_slope = it.table<xnn::XNNLeakyReLU>().negative_slope();
  return it.unary(xnn_unary_leaky_relu, it.table<xnn::XNNLeakyReLU>().flags(), &params);
}

xnn_status define_convert(const NodeCall& it) {
  // XNNPACK's own flags of a conversion whose result only 4-bit layers read: on a processor with KleidiAI's
  // kernels for them, it is made in these kernels' packed form (src/xnnpack/internal.h of the pinned
  // XNNPACK).
  constexpr std::uint32_t kMaybePackForQc4w = 0x80;
  constexpr std::uint32_t kMaybePackForQb4w = 0x100;
  const std::uint32_t result = it.values.outputs[0];
  if (it.graph.type_of(it.values.inputs[0]) == xnn_datatype_fp32 &&
      it.graph.type_of(result) == xnn_datatype_fp32) {
    return xnn_define_copy(it.to, it.in[0], it.out[0], 0);  // from or to what was widened
  }
  std::uint32_t flags = it.table<xnn::_XNNNode1x1>().flags() & ~(kMaybePackForQc4w | kMaybePackForQb4w);
  if (it.graph.feeds_only(result, xnn_datatype_qcint4)) {
    flags |= kMaybePackForQc4w;
  } else if (it.graph.feeds_only(result, xnn_datatype_qbint4)) {
    flags |= kMaybePackForQb4w;
  }
  return it.unary(xnn_unary_convert, flags);
}

// Along the last dimension (softmax), or no computation at all (copy).
template <auto kDefine>
xnn_status define_plain(const NodeCall& it) {
  return kDefine(it.to, it.in[0], it.out[0], it.table<xnn::_XNNNode1x1>().flags());
}

template <xnn_binary_operator kType>
xnn_status define_binary(const NodeCall& it) {
  const xnn_binary_params params{it.min, it.max};
  return xnn_define_binary(it.to, kType, &params, it.in[0], it.in[1], it.out[0],
                           it.table<xnn::_XNNNode2x1>().flags());
}

// Each pixel is a row: the filter [outputs, 1, 1, inputs] is a matrix.
xnn_status define_pixels(const NodeCall& it) {
  const auto& node = it.table<xnn::_XNNNodeConv>();
  const xnn_value& filter = it.to->values[it.in[1]];
  const std::size_t dims[] = {node.group_output_channels(), node.group_input_channels()};
  std::uint32_t matrix = XNN_INVALID_VALUE_ID;
  const xnn_status status = xnn_define_channelwise_quantized_tensor_value_v2(
      it.to, filter.datatype, 0, filter.quantization.channelwise_scale, 2, 0, dims, filter.data,
      XNN_INVALID_VALUE_ID, 0, &matrix);
  return status != xnn_status_success
             ? status
             : xnn_define_fully_connected(it.to, it.min, it.max, it.in[0], matrix, it.in[2], it.out[0], 0);
}

xnn_status define_convolution(const NodeCall& it) {
  const auto& node = it.table<xnn::_XNNNodeConv>();
  if (it.input(0).by_pixels) {
    return define_pixels(it);
  }
  return xnn_define_convolution_2d(
      it.to, node.padding_top(), node.padding_right(), node.padding_bottom(), node.padding_left(),
      node.kernel_height(), node.kernel_width(), node.subsampling_height(), node.subsampling_width(),
      node.dilation_height(), node.dilation_width(), node.groups(), node.group_input_channels(),
      node.group_output_channels(), it.min, it.max, it.in[0], it.in[1], it.in[2], it.out[0], node.flags());
}

// One input channel a group.
xnn_status define_depthwise(const NodeCall& it) {
  const auto& node = it.table<xnn::_XNNNodeConv>();
  return xnn_define_depthwise_convolution_2d(
      it.to, node.padding_top(), node.padding_right(), node.padding_bottom(), node.padding_left(),
      node.kernel_height(), node.kernel_width(), node.subsampling_height(), node.subsampling_width(),
      node.dilation_height(), node.dilation_width(), node.group_output_channels(), node.groups(), it.min,
      it.max, it.in[0], it.in[1], it.in[2], it.out[0], node.flags());
}

xnn_status define_transposed(const NodeCall& it) {
  const auto& node = it.table<xnn::_XNNNodeConv>();
  return xnn_define_deconvolution_2d(it.to, node.padding_top(), node.padding_right(), node.padding_bottom(),
                                     node.padding_left(), node.adjustment_height(), node.adjustment_width(),
                                     node.kernel_height(), node.kernel_width(), node.subsampling_height(),
                                     node.subsampling_width(), node.dilation_height(), node.dilation_width(),
                                     node.groups(), node.group_input_channels(), node.group_output_channels(),
                                     it.min, it.max, it.in[0], it.in[1], it.in[2], it.out[0], node.flags());
}

// The nodes of one fully-connected layer whose weights or bias come when the program runs. XNNPACK has such
// layers in float32 only: what is of half precision is converted before and after. It packs such weights into
// memory that nobody cleared, and its kernels for few outputs read them in groups of inputs: what the last
// group lacks would be anything. So the inputs are made a multiple of every group, with zeros.
class GivenLayer {
 public:
  // `inputs`: features of a row.
  GivenLayer(const GraphBuilder& graph, std::size_t inputs)
      : graph_(graph), lacking_((kGroup - inputs % kGroup) % kGroup) {}

  // The value in float32: XNNPACK's id of it, or that of another value where it is not. No value stays none.
  std::uint32_t take(std::uint32_t value) {
    const std::uint32_t id = graph_.id_of(value);
    std::uint32_t wide = id;
    if (value != kNoValue && widen(value, &wide)) {
      status_ = convert(id, wide);
    }
    return wide;
  }
  // The same, and as many zeros at the end of a dimension, the one of the layer's inputs, as they lack.
  std::uint32_t take_padded(std::uint32_t value, std::size_t along) {
    const std::uint32_t id = take(value);
    if (lacking_ == 0 || status_ != xnn_status_success) {
      return id;
    }
    Dims dims = graph_.fact(value).declared;
    const std::size_t none[XNN_MAX_TENSOR_DIMS] = {};
    std::size_t after[XNN_MAX_TENSOR_DIMS] = {};
    dims[along] += lacking_;
    after[along] = lacking_;
    std::uint32_t padded = XNN_INVALID_VALUE_ID;
    status_ = make(dims, &padded);
    if (status_ == xnn_status_success) {
      status_ = xnn_define_static_constant_pad(graph_.subgraph(), none, after, 0.0F, id, padded, 0);
    }
    return padded;
  }
  // The layer itself, with values that were taken.
  xnn_status define(const NodeCall& it, std::uint32_t input, std::uint32_t filter, std::uint32_t bias) {
    std::uint32_t result = it.out[0];
    const bool narrows = widen(it.values.outputs[0], &result);
    if (status_ == xnn_status_success) {
      const auto plain = plain_rows();
      status_ = xnn_define_fully_connected(it.to, it.min, it.max, input, filter, bias, result,
                                           it.table<xnn::XNNFullyConnected>().flags());
    }
    return narrows && status_ == xnn_status_success ? convert(result, it.out[0]) : status_;
  }

 private:
  static constexpr std::size_t kGroup = 16;  // a multiple of kr times sr of all kernels in float32

  xnn_status make(const Dims& dims, std::uint32_t* id) {
    return xnn_define_tensor_value(graph_.subgraph(), xnn_datatype_fp32, dims.rank, dims.size.data(), nullptr,
                                   XNN_INVALID_VALUE_ID, 0, id);
  }
  // Makes a float32 value beside one of half precision.
  bool widen(std::uint32_t value, std::uint32_t* id) {
    if (graph_.type_of(value) != xnn_datatype_fp16 || status_ != xnn_status_success) {
      return false;
    }
    status_ = make(graph_.fact(value).declared, id);
    return status_ == xnn_status_success;
  }
  xnn_status convert(std::uint32_t from, std::uint32_t to) {
    return xnn_define_unary(graph_.subgraph(), xnn_unary_convert, nullptr, from, to, 0);
  }

  const GraphBuilder& graph_;
  std::size_t lacking_;
  xnn_status status_ = xnn_status_success;
};

xnn_status define_fully_connected(const NodeCall& it) {
  const std::uint32_t flags = it.table<xnn::XNNFullyConnected>().flags();
  const std::uint32_t bias = it.values.inputs[2];
  if (it.input(1).constant && (bias == kNoValue || it.input(2).constant)) {
    return xnn_define_fully_connected(it.to, it.min, it.max, it.in[0], it.in[1], it.in[2], it.out[0], flags);
  }
  const std::size_t along = (flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0 ? 0 : 1;
  GivenLayer given(it.graph, it.input(1).declared[along]);
  const std::uint32_t rows = given.take_padded(it.values.inputs[0], it.input(0).declared.rank - 1);
  const std::uint32_t filter = given.take_padded(it.values.inputs[1], along);
  return given.define(it, rows, filter, given.take(bias));
}

xnn_status define_attention(const NodeCall& it) {
  return xnn_define_scaled_dot_product_attention(it.to, xnn_attention_logits_cap_type_none, nullptr, it.in[0],
                                                 it.in[1], it.in[2], it.in[3], it.in[4], it.out[0],
                                                 it.table<xnn::XNNScaledDotProductAttention>().flags());
}

xnn_status define_batch_matrix_multiply(const NodeCall& it) {
  return xnn_define_batch_matrix_multiply(it.to, it.in[0], it.in[1], it.out[0],
                                          it.table<xnn::_XNNNode2x1>().flags());
}

// The mean over height and width, in NHWC.
xnn_status define_global_average(const NodeCall& it) {
  const std::size_t rank = it.input(0).declared.rank;
  const std::size_t axes[] = {rank - 3, rank - 2};
  return xnn_define_static_reduce(
      it.to, xnn_reduce_mean, 2, axes, it.in[0], it.out[0],
      it.graph.fact(it.values.outputs[0]).declared.rank == rank ? XNN_FLAG_KEEP_DIMS : 0);
}

xnn_status define_average_pooling(const NodeCall& it) {
  const auto& node = it.table<xnn::_XNNPooling2D>();
  return xnn_define_average_pooling_2d(it.to, node.padding_top(), node.padding_right(), node.padding_bottom(),
                                       node.padding_left(), node.pooling_height(), node.pooling_width(),
                                       node.stride_height(), node.stride_width(), it.min, it.max, it.in[0],
                                       it.out[0], node.flags());
}

xnn_status define_max_pooling(const NodeCall& it) {
  const auto& node = it.table<xnn::_XNNPooling2D>();
  const bool moves = node.stride_height() != 1 || node.stride_width() != 1 || node.padding_top() != 0 ||
                     node.padding_right() != 0 || node.padding_bottom() != 0 || node.padding_left() != 0;
  if (node.pooling_height() == 1 && node.pooling_width() == 1 && !moves) {
    // The largest of one element is this element. XNNPACK refuses it as meaningless, exporters make it.
    return std::isinf(it.min) && std::isinf(it.max) ? xnn_define_copy(it.to, it.in[0], it.out[0], 0)
                                                    : it.clamp(0);
  }
  return xnn_define_max_pooling_2d(it.to, node.padding_top(), node.padding_right(), node.padding_bottom(),
                                   node.padding_left(), node.pooling_height(), node.pooling_width(),
                                   node.stride_height(), node.stride_width(), node.dilation_height(),
                                   node.dilation_width(), it.min, it.max, it.in[0], it.out[0], node.flags());
}

xnn_status define_argmax_pooling(const NodeCall& it) {
  const auto& node = it.table<xnn::XNNArgMaxPooling2d>();
  return xnn_define_argmax_pooling_2d(it.to, node.padding_top(), node.padding_right(), node.padding_bottom(),
                                      node.padding_left(), node.pooling_height(), node.pooling_width(),
                                      it.in[0], it.out[0], it.out[1], node.flags());
}

std::vector<std::size_t> stored_sizes(const flatbuffers::Vector<std::uint32_t>* items) {
  return items == nullptr ? std::vector<std::size_t>()
                          : std::vector<std::size_t>(items->begin(), items->end());
}

xnn_status define_transpose(const NodeCall& it) {
  const auto& node = it.table<xnn::XNNStaticTranspose>();
  const std::vector<std::size_t> order = stored_sizes(node.perm());
  return xnn_define_static_transpose(it.to, order.size(), order.data(), it.in[0], it.out[0], node.flags());
}

xnn_status define_slice(const NodeCall& it) {
  const auto& node = it.table<xnn::XNNStaticSlice>();
  const std::vector<std::size_t> offsets = stored_sizes(node.offsets());
  const std::vector<std::size_t> sizes = stored_sizes(node.sizes());
  return xnn_define_static_slice(it.to, sizes.size(), offsets.data(), sizes.data(), it.in[0], it.out[0],
                                 node.flags());
}

xnn_status define_reshape(const NodeCall& it) {
  const auto& node = it.table<xnn::XNNStaticReshape>();
  const std::vector<std::size_t> sizes = stored_sizes(node.new_shape());
  return xnn_define_static_reshape(it.to, sizes.size(), sizes.data(), it.in[0], it.out[0], node.flags());
}

xnn_status define_resize_bilinear(const NodeCall& it) {
  const auto& node = it.table<xnn::XNNStaticResizeBilinear2D>();
  return xnn_define_static_resize_bilinear_2d(it.to, node.new_height(), node.new_width(), it.in[0], it.out[0],
                                              node.flags());
}

xnn_status define_pad(const NodeCall& it) {
  const auto& node = it.table<xnn::XNNStaticConstantPad>();
  const std::vector<std::size_t> before = stored_sizes(node.pre_paddings());
  const std::vector<std::size_t> after = stored_sizes(node.post_paddings());
  return xnn_define_static_constant_pad(it.to, before.data(), after.data(), node.padding_value(), it.in[0],
                                        it.out[0], node.flags());
}

xnn_status define_concatenate(const NodeCall& it) {
  const auto& node = it.table<xnn::_XNNCat>();
  const auto axis = static_cast<std::int32_t>(node.axis());
  const std::uint32_t* in = it.in;
  switch (it.values.input_count) {
    case 2:
      return xnn_define_concatenate2(it.to, axis, in[0], in[1], it.out[0], node.flags());
    case 3:
      return xnn_define_concatenate3(it.to, axis, in[0], in[1], in[2], it.out[0], node.flags());
    case 4:
      return xnn_define_concatenate4(it.to, axis, in[0], in[1], in[2], in[3], it.out[0], node.flags());
    default:
      return xnn_define_concatenate5(it.to, axis, in[0], in[1], in[2], in[3], in[4], it.out[0], node.flags());
  }
}

Operands ids(std::initializer_list<std::uint32_t> inputs, std::initializer_list<std::uint32_t> outputs) {
  Operands operands;
  for (const std::uint32_t id : inputs) {
    operands.inputs[operands.input_count++] = id;
  }
  for (const std::uint32_t id : outputs) {
    operands.outputs[operands.output_count++] = id;
  }
  return operands;
}

// The tables with an input and an output.
template <typename Table>
Operands one(const xnn::XNode& node) {
  const auto& table = *static_cast<const Table*>(node.xnode_union());
  return ids({table.input_id()}, {table.output_id()});
}

Operands two(const xnn::XNode& node) {
  const auto& table = *static_cast<const xnn::_XNNNode2x1*>(node.xnode_union());
  return ids({table.input1_id(), table.input2_id()}, {table.output_id()});
}

// The tables of layers with weights.
template <typename Table>
Operands layer(const xnn::XNode& node) {
  const auto& table = *static_cast<const Table*>(node.xnode_union());
  return ids({table.input1_id(), table.filter_id(), table.bias_id()}, {table.output_id()});
}

template <std::size_t kCount>
Operands several(const xnn::XNode& node) {
  const auto& table = *static_cast<const xnn::_XNNCat*>(node.xnode_union());
  Operands operands =
      ids({table.input1_id(), table.input2_id(), table.input3_id(), table.input4_id(), table.input5_id()},
          {table.output_id()});
  operands.input_count = kCount;
  return operands;
}

Operands argmax(const xnn::XNode& node) {
  const auto& table = *node.xnode_union_as_XNNArgMaxPooling2d();
  return ids({table.input_id()}, {table.output_value_id(), table.output_index_id()});
}

Operands attention(const xnn::XNode& node) {
  const auto& table = *node.xnode_union_as_XNNScaledDotProductAttention();
  return ids({table.query_id(), table.key_id(), table.value_id(), table.scale_id(), table.mask_id()},
             {table.output_id()});
}

constexpr auto kOne = one<xnn::_XNNNode1x1>;
constexpr auto kPool = one<xnn::_XNNPooling2D>;
constexpr auto kConvolution = layer<xnn::_XNNNodeConv>;

constexpr auto kMovable = {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_qint8, xnn_datatype_quint8};
constexpr auto kFloating = {xnn_datatype_fp32, xnn_datatype_fp16};
constexpr auto kFloat32 = {xnn_datatype_fp32};

constexpr TypeSet kByRule = {};
constexpr TypeSet kCounted = {kNumbers};
constexpr TypeSet kMoved = {kMovable, true};
constexpr TypeSet kAveraged = {kMovable};
constexpr TypeSet kFloats = {kFloating};
constexpr TypeSet kFloat = {kFloat32};

// Every kind, in the schema's order.
constexpr NodeRule kRules[] = {
    {Kind::XNNAdd, two, kCounted, check_binary, define_binary<xnn_binary_add>},
    {Kind::XNNFullyConnected, layer<xnn::XNNFullyConnected>, kByRule, check_fully_connected,
     define_fully_connected},
    {Kind::XNNSoftmax, kOne, kFloats, check_softmax, define_plain<xnn_define_softmax>},
    {Kind::XNNSigmoid, kOne, kCounted, check_elements, define_unary<xnn_unary_sigmoid>},
    {Kind::XNNStaticTranspose, one<xnn::XNNStaticTranspose>, kMoved, check_transpose, define_transpose},
    {Kind::XNNClamp, kOne, kCounted, check_elements, define_clamp},
    {Kind::XNNConv2d, kConvolution, kByRule, check_convolution, define_convolution},
    {Kind::XNNDiv, two, kCounted, check_binary, define_binary<xnn_binary_divide>},
    {Kind::XNNStaticResizeBilinear2D, one<xnn::XNNStaticResizeBilinear2D>, kMoved, check_resize,
     define_resize_bilinear},
    {Kind::XNNStaticConstantPad, one<xnn::XNNStaticConstantPad>, kMoved, check_pad, define_pad},
    {Kind::XNNAvgPooling2d, kPool, kFloats, check_pooling, define_average_pooling},
    {Kind::XNNMinimum, two, kCounted, check_binary, define_binary<xnn_binary_minimum>},
    {Kind::XNNDepthwiseConv2d, kConvolution, kByRule, check_convolution, define_depthwise},
    {Kind::XNNMaxPooling2d, kPool, kMoved, check_pooling, define_max_pooling},
    {Kind::XNNMultiply, two, kCounted, check_binary, define_binary<xnn_binary_multiply>},
    {Kind::XNNSubtract, two, kCounted, check_binary, define_binary<xnn_binary_subtract>},
    {Kind::XNNFloor, kOne, kCounted, check_elements, define_unary<xnn_unary_floor>},
    {Kind::XNNConvert, kOne, kByRule, check_convert, define_convert},
    {Kind::XNNGlobalAvgPooling2d, kOne, kAveraged, check_global_average, define_global_average},
    {Kind::XNNStaticReshape, one<xnn::XNNStaticReshape>, kMoved, check_reshape, define_reshape},
    {Kind::XNNArgMaxPooling2d, argmax, kFloat, check_argmax_pooling, define_argmax_pooling},
    {Kind::XNNSquareRoot, kOne, kCounted, check_elements, define_unary<xnn_unary_square_root>},
    {Kind::XNNCeiling, kOne, kCounted, check_elements, define_unary<xnn_unary_ceiling>},
    {Kind::XNNHardswish, kOne, kCounted, check_elements, define_unary<xnn_unary_hardswish>},
    {Kind::XNNLeakyReLU, one<xnn::XNNLeakyReLU>, kCounted, check_elements, define_leaky_relu},
    {Kind::XNNMaximum, two, kCounted, check_binary, define_binary<xnn_binary_maximum>},
    {Kind::XNNNegate, kOne, kCounted, check_elements, define_unary<xnn_unary_negate>},
    {Kind::XNNSquare, kOne, kCounted, check_elements, define_unary<xnn_unary_square>},
    {Kind::XNNELU, one<xnn::XNNELU>, kCounted, check_elements, define_elu},
    {Kind::XNNAbs, kOne, kCounted, check_elements, define_unary<xnn_unary_abs>},
    {Kind::XNNPReLU, two, kCounted, check_binary, define_binary<xnn_binary_prelu>},
    {Kind::XNNConcatenate2, several<2>, kMoved, check_concatenate, define_concatenate},
    {Kind::XNNConcatenate3, several<3>, kMoved, check_concatenate, define_concatenate},
    {Kind::XNNConcatenate4, several<4>, kMoved, check_concatenate, define_concatenate},
    {Kind::XNNStaticSlice, one<xnn::XNNStaticSlice>, kMoved, check_slice, define_slice},
    {Kind::XNNScaledDotProductAttention, attention, kFloats, check_attention, define_attention},
    {Kind::XNNBatchMatrixMultiply, two, kByRule, check_batch_matrix_multiply, define_batch_matrix_multiply},
    {Kind::XNNConcatenate5, several<5>, kMoved, check_concatenate, define_concatenate},
    {Kind::XNNConvTranspose2d, kConvolution, kByRule, check_convolution, define_transposed},
    {Kind::XNNReciprocalSquareRoot, kOne, kCounted, check_elements,
     define_unary<xnn_unary_reciprocal_square_root>},
    {Kind::XNNLog, kOne, kCounted, check_elements, define_unary<xnn_unary_log>},
    {Kind::XNNGelu, kOne, kCounted, check_elements, define_unary<xnn_unary_gelu>},
    {Kind::XNNTanh, kOne, kCounted, check_elements, define_unary<xnn_unary_tanh>},
    {Kind::XNNExp, kOne, kCounted, check_elements, define_unary<xnn_unary_exp>},
    {Kind::XNNSin, kOne, kCounted, check_elements, define_unary<xnn_unary_sine>},
    {Kind::XNNCopy, kOne, kMoved, check_elements, define_plain<xnn_define_copy>},
    {Kind::XNNCos, kOne, kCounted, check_elements, define_unary<xnn_unary_cosine>},
};
constexpr std::size_t kRuleCount = sizeof(kRules) / sizeof(kRules[0]);

constexpr bool complete() {
  for (std::size_t i = 0; i < kRuleCount; ++i) {
    if (static_cast<std::size_t>(kRules[i].kind) != i + 1) {
      return false;
    }
  }
  return kRuleCount == static_cast<std::size_t>(Kind::MAX);
}
static_assert(complete(), "a kind of node of the schema has no rule");

}  // namespace

const NodeRule* rule_of(xnn::XNodeUnion kind) {
  const auto number = static_cast<std::size_t>(kind);
  return number == 0 || number > kRuleCount ? nullptr : &kRules[number - 1];
}

xnn_status define_xnn_node(const GraphBuilder& graph, const GraphNode& node) {
  return rule_of(node.node->xnode_union_type())->define(NodeCall(graph, node));
}

}  // namespace slipway::lean
