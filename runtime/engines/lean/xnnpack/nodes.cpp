// From the exporter's nodes to XNNPACK's calls.
#include <xnnpack/subgraph.h>

#include <cmath>
#include <limits>

#include "lean/xnnpack/graph_builder.h"
#include "lean/xnnpack/kernel_choices.h"

namespace slipway::lean {
namespace {

using Kind = xnn::XNodeUnion;

constexpr xnn_status kInvalid = xnn_status_invalid_parameter;

struct Range {
  explicit Range(const xnn::XNode& node) {
    if (const xnn::OutputMinMax* range = node.output_min_max()) {
      min = range->output_min();
      max = range->output_max();
    }
  }

  float min = -std::numeric_limits<float>::infinity();
  float max = std::numeric_limits<float>::infinity();
};

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

// A node's table with one input and one output, and XNNPACK's ids of these.
template <typename Table>
struct OneToOne {
  OneToOne(const GraphBuilder& graph, const xnn::XNode& outer)
      : node(*static_cast<const Table*>(outer.xnode_union())) {
    Ids id(graph);
    input = id(node.input_id());
    output = id.output(node.output_id());
    good = id.good();
  }

  const Table& node;
  std::uint32_t input, output;
  bool good;
};
using Plain = OneToOne<xnn::_XNNNode1x1>;

template <typename Table>
xnn_status define_with(const GraphBuilder& graph, const xnn::XNode& outer, xnn_unary_operator type,
                       const xnn_unary_params* params) {
  const OneToOne<Table> it(graph, outer);
  return it.good ? xnn_define_unary(graph.subgraph(), type, params, it.input, it.output, it.node.flags())
                 : kInvalid;
}

template <xnn_unary_operator kType>
xnn_status define_unary(const GraphBuilder& graph, const xnn::XNode& outer) {
  return define_with<xnn::_XNNNode1x1>(graph, outer, kType, nullptr);
}

xnn_status define_clamp(const GraphBuilder& graph, const xnn::XNode& outer) {
  xnn_unary_params params;
  params.clamp.min = Range(outer).min;
  params.clamp.max = Range(outer).max;
  return define_with<xnn::_XNNNode1x1>(graph, outer, xnn_unary_clamp, &params);
}

xnn_status define_elu(const GraphBuilder& graph, const xnn::XNode& outer) {
  xnn_unary_params params;
  params.elu.alpha = outer.xnode_union_as_XNNELU()->alpha();
  return define_with<xnn::XNNELU>(graph, outer, xnn_unary_elu, &params);
}

xnn_status define_leaky_relu(const GraphBuilder& graph, const xnn::XNode& outer) {
  xnn_unary_params params;
  params.leaky_relu.negative_slope = outer.xnode_union_as_XNNLeakyReLU()->negative_slope();
  return define_with<xnn::XNNLeakyReLU>(graph, outer, xnn_unary_leaky_relu, &params);
}

xnn_status define_convert(const GraphBuilder& graph, const xnn::XNode& outer) {
  // XNNPACK's own flags of a conversion whose result only 4-bit layers read: on a processor with KleidiAI's
  // kernels for them, it is made in these kernels' packed form (src/xnnpack/internal.h of the pinned
  // XNNPACK).
  constexpr std::uint32_t kMaybePackForQc4w = 0x80;
  constexpr std::uint32_t kMaybePackForQb4w = 0x100;
  const Plain it(graph, outer);
  if (!it.good) {
    return kInvalid;
  }
  const xnn_datatype from = graph.find(it.node.input_id())->datatype;
  const std::uint32_t result = it.node.output_id();
  if (from == xnn_datatype_fp32 && from == graph.find(result)->datatype) {
    return xnn_define_copy(graph.subgraph(), it.input, it.output, 0);  // from or to what was widened
  }
  std::uint32_t flags = it.node.flags() & ~(kMaybePackForQc4w | kMaybePackForQb4w);
  if (graph.feeds_only(result, xnn_datatype_qcint4)) {
    flags |= kMaybePackForQc4w;
  } else if (graph.feeds_only(result, xnn_datatype_qbint4)) {
    flags |= kMaybePackForQb4w;
  }
  return xnn_define_unary(graph.subgraph(), xnn_unary_convert, nullptr, it.input, it.output, flags);
}

// Along the last dimension (softmax), or no computation at all (copy).
template <auto kDefine>
xnn_status define_plain(const GraphBuilder& graph, const xnn::XNode& outer) {
  const Plain it(graph, outer);
  return it.good ? kDefine(graph.subgraph(), it.input, it.output, it.node.flags()) : kInvalid;
}

template <xnn_binary_operator kType>
xnn_status define_binary(const GraphBuilder& graph, const xnn::XNode& outer) {
  const auto& node = *static_cast<const xnn::_XNNNode2x1*>(outer.xnode_union());
  Ids id(graph);
  const std::uint32_t first = id(node.input1_id());
  const std::uint32_t second = id(node.input2_id());
  const std::uint32_t output = id.output(node.output_id());
  const xnn_binary_params params{Range(outer).min, Range(outer).max};
  return id.good() ? xnn_define_binary(graph.subgraph(), kType, &params, first, second, output, node.flags())
                   : kInvalid;
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

// What the three kinds of convolution have in common.
struct Convolution {
  Convolution(const GraphBuilder& graph, const xnn::XNode& outer)
      : node(*static_cast<const xnn::_XNNNodeConv*>(outer.xnode_union())), range(outer) {
    Ids id(graph);
    input = id(node.input1_id());
    filter = id(node.filter_id());
    bias = id.optional(node.bias_id());
    output = id.output(node.output_id());
    const std::size_t kernel = std::size_t{node.kernel_height()} * node.kernel_width();
    const std::size_t outputs = std::size_t{node.groups()} * node.group_output_channels();
    good = id.good() && fits(graph, node.filter_id(), node.bias_id(),
                             outputs * kernel * node.group_input_channels(), outputs);
  }

  const xnn::_XNNNodeConv& node;
  Range range;
  std::uint32_t input, filter, bias, output;
  bool good;
};

// Each pixel is a row: the filter [outputs, 1, 1, inputs] is a matrix.
xnn_status define_pixels(const GraphBuilder& graph, const Convolution& it) {
  const xnn_value& filter = graph.subgraph()->values[it.filter];
  if (filter.datatype != xnn_datatype_qcint8 || filter.quantization.channel_dimension != 0) {
    return kInvalid;
  }
  const std::size_t dims[] = {it.node.group_output_channels(), it.node.group_input_channels()};
  std::uint32_t matrix = XNN_INVALID_VALUE_ID;
  const xnn_status status = xnn_define_channelwise_quantized_tensor_value_v2(
      graph.subgraph(), filter.datatype, 0, filter.quantization.channelwise_scale, 2, 0, dims, filter.data,
      XNN_INVALID_VALUE_ID, 0, &matrix);
  return status != xnn_status_success
             ? status
             : xnn_define_fully_connected(graph.subgraph(), it.range.min, it.range.max, it.input, matrix,
                                          it.bias, it.output, 0);
}

xnn_status define_convolution(const GraphBuilder& graph, const xnn::XNode& outer) {
  const Convolution it(graph, outer);
  const xnn::_XNNNodeConv& node = it.node;
  if (!it.good || graph.pixel_layers().has(node)) {
    return it.good ? define_pixels(graph, it) : kInvalid;
  }
  return xnn_define_convolution_2d(graph.subgraph(), node.padding_top(), node.padding_right(),
                                   node.padding_bottom(), node.padding_left(), node.kernel_height(),
                                   node.kernel_width(), node.subsampling_height(), node.subsampling_width(),
                                   node.dilation_height(), node.dilation_width(), node.groups(),
                                   node.group_input_channels(), node.group_output_channels(), it.range.min,
                                   it.range.max, it.input, it.filter, it.bias, it.output, node.flags());
}

// One input channel a group.
xnn_status define_depthwise(const GraphBuilder& graph, const xnn::XNode& outer) {
  const Convolution it(graph, outer);
  const xnn::_XNNNodeConv& node = it.node;
  if (!it.good || node.group_input_channels() != 1) {
    return kInvalid;
  }
  return xnn_define_depthwise_convolution_2d(
      graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(), node.padding_left(),
      node.kernel_height(), node.kernel_width(), node.subsampling_height(), node.subsampling_width(),
      node.dilation_height(), node.dilation_width(), node.group_output_channels(), node.groups(),
      it.range.min, it.range.max, it.input, it.filter, it.bias, it.output, node.flags());
}

xnn_status define_transposed(const GraphBuilder& graph, const xnn::XNode& outer) {
  const Convolution it(graph, outer);
  const xnn::_XNNNodeConv& node = it.node;
  if (!it.good) {
    return kInvalid;
  }
  return xnn_define_deconvolution_2d(
      graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(), node.padding_left(),
      node.adjustment_height(), node.adjustment_width(), node.kernel_height(), node.kernel_width(),
      node.subsampling_height(), node.subsampling_width(), node.dilation_height(), node.dilation_width(),
      node.groups(), node.group_input_channels(), node.group_output_channels(), it.range.min, it.range.max,
      it.input, it.filter, it.bias, it.output, node.flags());
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

  // The value in float32: XNNPACK's id becomes that of another value where it is not. Ids that are invalid
  // stay.
  void take(std::uint32_t exported, std::uint32_t* id) {
    std::uint32_t wide = *id;
    if (*id != XNN_INVALID_VALUE_ID && widen(exported, &wide)) {
      status_ = convert(*id, wide);
      *id = wide;
    }
  }
  // The same, and as many zeros at the end of a dimension, the one of the layer's inputs, as they lack.
  void take_padded(std::uint32_t exported, std::uint32_t* id, std::size_t along) {
    take(exported, id);
    if (lacking_ == 0 || status_ != xnn_status_success) {
      return;
    }
    std::vector<std::size_t> dims = graph_.find(exported)->dims;
    const std::size_t none[XNN_MAX_TENSOR_DIMS] = {};
    std::size_t after[XNN_MAX_TENSOR_DIMS] = {};
    dims[along] += lacking_;
    after[along] = lacking_;
    std::uint32_t padded = XNN_INVALID_VALUE_ID;
    status_ = xnn_define_tensor_value(graph_.subgraph(), xnn_datatype_fp32, dims.size(), dims.data(), nullptr,
                                      XNN_INVALID_VALUE_ID, 0, &padded);
    if (status_ == xnn_status_success) {
      status_ = xnn_define_static_constant_pad(graph_.subgraph(), none, after, 0.0F, *id, padded, 0);
    }
    *id = padded;
  }
  // The layer itself, with values that were taken.
  xnn_status define(const Range& range, std::uint32_t input, std::uint32_t filter, std::uint32_t bias,
                    std::uint32_t output, std::uint32_t exported_output, std::uint32_t flags) {
    std::uint32_t result = output;
    const bool narrows = widen(exported_output, &result);
    if (status_ == xnn_status_success) {
      const PlainRows plain;
      status_ = xnn_define_fully_connected(graph_.subgraph(), range.min, range.max, input, filter, bias,
                                           result, flags);
    }
    return narrows && status_ == xnn_status_success ? convert(result, output) : status_;
  }

 private:
  static constexpr std::size_t kGroup = 16;  // a multiple of kr times sr of all kernels in float32

  // Makes a float32 value beside one of half precision.
  bool widen(std::uint32_t exported, std::uint32_t* id) {
    const GraphValue& value = *graph_.find(exported);
    if (value.datatype != xnn_datatype_fp16 || status_ != xnn_status_success) {
      return false;
    }
    status_ = xnn_define_tensor_value(graph_.subgraph(), xnn_datatype_fp32, value.dims.size(),
                                      value.dims.data(), nullptr, XNN_INVALID_VALUE_ID, 0, id);
    return status_ == xnn_status_success;
  }
  xnn_status convert(std::uint32_t from, std::uint32_t to) {
    return xnn_define_unary(graph_.subgraph(), xnn_unary_convert, nullptr, from, to, 0);
  }

  const GraphBuilder& graph_;
  std::size_t lacking_;
  xnn_status status_ = xnn_status_success;
};

xnn_status define_fully_connected(const GraphBuilder& graph, const xnn::XNode& outer) {
  const xnn::XNNFullyConnected& node = *outer.xnode_union_as_XNNFullyConnected();
  Ids id(graph);
  const std::uint32_t input = id(node.input1_id());
  std::uint32_t filter = id(node.filter_id());
  std::uint32_t bias = id.optional(node.bias_id());
  const std::uint32_t output = id.output(node.output_id());
  if (!id.good() || graph.find(node.filter_id())->dims.size() != 2) {
    return kInvalid;
  }
  const std::vector<std::size_t>& dims = graph.find(node.filter_id())->dims;
  const std::size_t along = (node.flags() & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0 ? 0 : 1;
  if (!fits(graph, node.filter_id(), node.bias_id(), dims[0] * dims[1], dims[1 - along])) {
    return kInvalid;
  }
  const Range range(outer);
  const GraphValue* offsets = graph.find(node.bias_id());
  if (graph.find(node.filter_id())->constant && (offsets == nullptr || offsets->constant)) {
    return xnn_define_fully_connected(graph.subgraph(), range.min, range.max, input, filter, bias, output,
                                      node.flags());
  }
  const std::size_t rank = graph.find(node.input1_id())->dims.size();
  if (rank == 0) {
    return kInvalid;
  }
  GivenLayer given(graph, dims[along]);
  std::uint32_t rows = input;
  given.take_padded(node.input1_id(), &rows, rank - 1);
  given.take_padded(node.filter_id(), &filter, along);
  given.take(node.bias_id(), &bias);
  return given.define(range, rows, filter, bias, output, node.output_id(), node.flags());
}

xnn_status define_attention(const GraphBuilder& graph, const xnn::XNode& outer) {
  const auto& node = *outer.xnode_union_as_XNNScaledDotProductAttention();
  Ids id(graph);
  const std::uint32_t query = id(node.query_id());
  const std::uint32_t key = id(node.key_id());
  const std::uint32_t value = id(node.value_id());
  const std::uint32_t scale = id(node.scale_id());
  const std::uint32_t mask = id(node.mask_id());
  const std::uint32_t output = id.output(node.output_id());
  return !id.good() ? kInvalid
                    : xnn_define_scaled_dot_product_attention(
                          graph.subgraph(), xnn_attention_logits_cap_type_none, nullptr, query, key, value,
                          scale, mask, output, node.flags());
}

xnn_status define_batch_matrix_multiply(const GraphBuilder& graph, const xnn::XNode& outer) {
  const auto& node = *outer.xnode_union_as_XNNBatchMatrixMultiply();
  Ids id(graph);
  const std::uint32_t first = id(node.input1_id());
  const std::uint32_t second = id(node.input2_id());
  const std::uint32_t output = id.output(node.output_id());
  return !id.good() ? kInvalid
                    : xnn_define_batch_matrix_multiply(graph.subgraph(), first, second, output, node.flags());
}

// The mean over height and width, in NHWC.
xnn_status define_global_average(const GraphBuilder& graph, const xnn::XNode& outer) {
  const Plain it(graph, outer);
  if (!it.good || graph.find(it.node.input_id())->dims.size() < 3) {
    return kInvalid;
  }
  const std::size_t rank = graph.find(it.node.input_id())->dims.size();
  const std::size_t axes[] = {rank - 3, rank - 2};
  const bool keep = graph.find(it.node.output_id())->dims.size() == rank;
  return xnn_define_static_reduce(graph.subgraph(), xnn_reduce_mean, 2, axes, it.input, it.output,
                                  keep ? XNN_FLAG_KEEP_DIMS : 0);
}

xnn_status define_average_pooling(const GraphBuilder& graph, const xnn::XNode& outer) {
  const OneToOne<xnn::_XNNPooling2D> it(graph, outer);
  const Range range(outer);
  return !it.good ? kInvalid
                  : xnn_define_average_pooling_2d(
                        graph.subgraph(), it.node.padding_top(), it.node.padding_right(),
                        it.node.padding_bottom(), it.node.padding_left(), it.node.pooling_height(),
                        it.node.pooling_width(), it.node.stride_height(), it.node.stride_width(), range.min,
                        range.max, it.input, it.output, it.node.flags());
}

xnn_status define_max_pooling(const GraphBuilder& graph, const xnn::XNode& outer) {
  const OneToOne<xnn::_XNNPooling2D> it(graph, outer);
  const xnn::_XNNPooling2D& node = it.node;
  const Range range(outer);
  if (!it.good) {
    return kInvalid;
  }
  const bool moves = node.stride_height() != 1 || node.stride_width() != 1 || node.padding_top() != 0 ||
                     node.padding_right() != 0 || node.padding_bottom() != 0 || node.padding_left() != 0;
  if (node.pooling_height() == 1 && node.pooling_width() == 1 && !moves) {
    // The largest of one element is this element. XNNPACK refuses it as meaningless, exporters make it.
    if (std::isinf(range.min) && std::isinf(range.max)) {
      return xnn_define_copy(graph.subgraph(), it.input, it.output, 0);
    }
    xnn_unary_params params{};
    params.clamp.min = range.min;
    params.clamp.max = range.max;
    return xnn_define_unary(graph.subgraph(), xnn_unary_clamp, &params, it.input, it.output, 0);
  }
  return xnn_define_max_pooling_2d(
      graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(), node.padding_left(),
      node.pooling_height(), node.pooling_width(), node.stride_height(), node.stride_width(),
      node.dilation_height(), node.dilation_width(), range.min, range.max, it.input, it.output, node.flags());
}

xnn_status define_argmax_pooling(const GraphBuilder& graph, const xnn::XNode& outer) {
  const auto& node = *outer.xnode_union_as_XNNArgMaxPooling2d();
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t value = id.output(node.output_value_id());
  const std::uint32_t index = id.output(node.output_index_id());
  return !id.good()
             ? kInvalid
             : xnn_define_argmax_pooling_2d(graph.subgraph(), node.padding_top(), node.padding_right(),
                                            node.padding_bottom(), node.padding_left(), node.pooling_height(),
                                            node.pooling_width(), input, value, index, node.flags());
}

std::vector<std::size_t> stored_sizes(const flatbuffers::Vector<std::uint32_t>* items) {
  return items == nullptr ? std::vector<std::size_t>()
                          : std::vector<std::size_t>(items->begin(), items->end());
}

// Nodes with lists of sizes name as many as their input has dimensions.
template <typename Node>
bool names_all(const GraphBuilder& graph, const Node& it, const std::vector<std::size_t>& list) {
  return it.good && list.size() == graph.find(it.node.input_id())->dims.size();
}

xnn_status define_transpose(const GraphBuilder& graph, const xnn::XNode& outer) {
  const OneToOne<xnn::XNNStaticTranspose> it(graph, outer);
  const std::vector<std::size_t> order = stored_sizes(it.node.perm());
  return !names_all(graph, it, order) || order.size() != it.node.num_dims()
             ? kInvalid
             : xnn_define_static_transpose(graph.subgraph(), order.size(), order.data(), it.input, it.output,
                                           it.node.flags());
}

xnn_status define_slice(const GraphBuilder& graph, const xnn::XNode& outer) {
  const OneToOne<xnn::XNNStaticSlice> it(graph, outer);
  const std::vector<std::size_t> offsets = stored_sizes(it.node.offsets());
  const std::vector<std::size_t> sizes = stored_sizes(it.node.sizes());
  return !names_all(graph, it, offsets) || offsets.size() != it.node.num_dims() ||
                 sizes.size() != offsets.size()
             ? kInvalid
             : xnn_define_static_slice(graph.subgraph(), sizes.size(), offsets.data(), sizes.data(), it.input,
                                       it.output, it.node.flags());
}

xnn_status define_reshape(const GraphBuilder& graph, const xnn::XNode& outer) {
  const OneToOne<xnn::XNNStaticReshape> it(graph, outer);
  const std::vector<std::size_t> sizes = stored_sizes(it.node.new_shape());
  return !it.good || sizes.size() != it.node.num_dims() || sizes.size() > XNN_MAX_TENSOR_DIMS
             ? kInvalid
             : xnn_define_static_reshape(graph.subgraph(), sizes.size(), sizes.data(), it.input, it.output,
                                         it.node.flags());
}

xnn_status define_resize_bilinear(const GraphBuilder& graph, const xnn::XNode& outer) {
  const OneToOne<xnn::XNNStaticResizeBilinear2D> it(graph, outer);
  return !it.good ? kInvalid
                  : xnn_define_static_resize_bilinear_2d(graph.subgraph(), it.node.new_height(),
                                                         it.node.new_width(), it.input, it.output,
                                                         it.node.flags());
}

xnn_status define_pad(const GraphBuilder& graph, const xnn::XNode& outer) {
  const OneToOne<xnn::XNNStaticConstantPad> it(graph, outer);
  const std::vector<std::size_t> before = stored_sizes(it.node.pre_paddings());
  const std::vector<std::size_t> after = stored_sizes(it.node.post_paddings());
  return !names_all(graph, it, before) || before.size() != after.size()
             ? kInvalid
             : xnn_define_static_constant_pad(graph.subgraph(), before.data(), after.data(),
                                              it.node.padding_value(), it.input, it.output, it.node.flags());
}

template <int kCount>
xnn_status define_concatenate(const GraphBuilder& graph, const xnn::XNode& outer) {
  const auto& node = *static_cast<const xnn::_XNNCat*>(outer.xnode_union());
  Ids id(graph);
  const std::uint32_t one = id(node.input1_id());
  const std::uint32_t two = id(node.input2_id());
  const std::uint32_t three = kCount > 2 ? id(node.input3_id()) : XNN_INVALID_VALUE_ID;
  const std::uint32_t four = kCount > 3 ? id(node.input4_id()) : XNN_INVALID_VALUE_ID;
  const std::uint32_t five = kCount > 4 ? id(node.input5_id()) : XNN_INVALID_VALUE_ID;
  const std::uint32_t output = id.output(node.output_id());
  const auto axis = static_cast<std::int32_t>(node.axis());
  xnn_subgraph_t to = graph.subgraph();
  if (!id.good()) {
    return kInvalid;
  }
  switch (kCount) {
    case 2:
      return xnn_define_concatenate2(to, axis, one, two, output, node.flags());
    case 3:
      return xnn_define_concatenate3(to, axis, one, two, three, output, node.flags());
    case 4:
      return xnn_define_concatenate4(to, axis, one, two, three, four, output, node.flags());
    default:
      return xnn_define_concatenate5(to, axis, one, two, three, four, five, output, node.flags());
  }
}

// One function a kind. Each answers kInvalid when a value that the node names is not there, or its sizes do
// not fit.
struct NodeRow {
  Kind kind;
  xnn_status (*define)(const GraphBuilder& graph, const xnn::XNode& node);
};

constexpr NodeRow kNodes[] = {
    {Kind::XNNAdd, define_binary<xnn_binary_add>},
    {Kind::XNNSubtract, define_binary<xnn_binary_subtract>},
    {Kind::XNNMultiply, define_binary<xnn_binary_multiply>},
    {Kind::XNNDiv, define_binary<xnn_binary_divide>},
    {Kind::XNNMinimum, define_binary<xnn_binary_minimum>},
    {Kind::XNNMaximum, define_binary<xnn_binary_maximum>},
    {Kind::XNNPReLU, define_binary<xnn_binary_prelu>},
    {Kind::XNNSigmoid, define_unary<xnn_unary_sigmoid>},
    {Kind::XNNFloor, define_unary<xnn_unary_floor>},
    {Kind::XNNSquareRoot, define_unary<xnn_unary_square_root>},
    {Kind::XNNCeiling, define_unary<xnn_unary_ceiling>},
    {Kind::XNNHardswish, define_unary<xnn_unary_hardswish>},
    {Kind::XNNNegate, define_unary<xnn_unary_negate>},
    {Kind::XNNSquare, define_unary<xnn_unary_square>},
    {Kind::XNNAbs, define_unary<xnn_unary_abs>},
    {Kind::XNNReciprocalSquareRoot, define_unary<xnn_unary_reciprocal_square_root>},
    {Kind::XNNLog, define_unary<xnn_unary_log>},
    {Kind::XNNGelu, define_unary<xnn_unary_gelu>},
    {Kind::XNNTanh, define_unary<xnn_unary_tanh>},
    {Kind::XNNExp, define_unary<xnn_unary_exp>},
    {Kind::XNNSin, define_unary<xnn_unary_sine>},
    {Kind::XNNCos, define_unary<xnn_unary_cosine>},
    {Kind::XNNFullyConnected, define_fully_connected},
    {Kind::XNNConv2d, define_convolution},
    {Kind::XNNDepthwiseConv2d, define_depthwise},
    {Kind::XNNConvTranspose2d, define_transposed},
    {Kind::XNNSoftmax, define_plain<xnn_define_softmax>},
    {Kind::XNNClamp, define_clamp},
    {Kind::XNNConvert, define_convert},
    {Kind::XNNCopy, define_plain<xnn_define_copy>},
    {Kind::XNNGlobalAvgPooling2d, define_global_average},
    {Kind::XNNAvgPooling2d, define_average_pooling},
    {Kind::XNNMaxPooling2d, define_max_pooling},
    {Kind::XNNArgMaxPooling2d, define_argmax_pooling},
    {Kind::XNNELU, define_elu},
    {Kind::XNNLeakyReLU, define_leaky_relu},
    {Kind::XNNStaticTranspose, define_transpose},
    {Kind::XNNStaticSlice, define_slice},
    {Kind::XNNStaticReshape, define_reshape},
    {Kind::XNNStaticResizeBilinear2D, define_resize_bilinear},
    {Kind::XNNStaticConstantPad, define_pad},
    {Kind::XNNConcatenate2, define_concatenate<2>},
    {Kind::XNNConcatenate3, define_concatenate<3>},
    {Kind::XNNConcatenate4, define_concatenate<4>},
    {Kind::XNNConcatenate5, define_concatenate<5>},
    {Kind::XNNScaledDotProductAttention, define_attention},
    {Kind::XNNBatchMatrixMultiply, define_batch_matrix_multiply},
};

}  // namespace

xnn_status define_xnn_node(const GraphBuilder& graph, const xnn::XNode& node) {
  if (node.xnode_union() == nullptr) {
    return kInvalid;
  }
  for (const NodeRow& row : kNodes) {
    if (row.kind == node.xnode_union_type()) {
      return row.define(graph, node);
    }
  }
  return xnn_status_unsupported_parameter;
}

}  // namespace slipway::lean
