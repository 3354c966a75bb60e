#include "lean/xnnpack/nodes.h"

namespace slipway::lean {
namespace nodes {

Range range_of(const xnn::XNode& node) {
  const xnn::OutputMinMax* range = node.output_min_max();
  return range == nullptr ? Range() : Range{range->output_min(), range->output_max()};
}

std::vector<std::size_t> sizes_of(const flatbuffers::Vector<std::uint32_t>* items) {
  return items == nullptr ? std::vector<std::size_t>()
                          : std::vector<std::size_t>(items->begin(), items->end());
}

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

}  // namespace nodes

namespace {

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
      return nodes::unary(graph, *static_cast<const xnn::_XNNNode1x1*>(table), row.type);
    }
  }
  for (const BinaryRow& row : kBinary) {
    if (row.node == kind) {
      return nodes::binary(graph, node, *static_cast<const xnn::_XNNNode2x1*>(table), row.type);
    }
  }
  switch (kind) {
    case xnn::XNodeUnion::XNNFullyConnected:
      return nodes::fully_connected(graph, node, *node.xnode_union_as_XNNFullyConnected());
    case xnn::XNodeUnion::XNNConv2d:
      return nodes::convolution(graph, node, *node.xnode_union_as_XNNConv2d());
    case xnn::XNodeUnion::XNNDepthwiseConv2d:
      return nodes::depthwise(graph, node, *node.xnode_union_as_XNNDepthwiseConv2d());
    case xnn::XNodeUnion::XNNConvTranspose2d:
      return nodes::transposed(graph, node, *node.xnode_union_as_XNNConvTranspose2d());
    case xnn::XNodeUnion::XNNSoftmax:
      return nodes::softmax(graph, *node.xnode_union_as_XNNSoftmax());
    case xnn::XNodeUnion::XNNClamp:
      return nodes::clamp(graph, node, *node.xnode_union_as_XNNClamp());
    case xnn::XNodeUnion::XNNConvert:
      return nodes::convert(graph, *node.xnode_union_as_XNNConvert());
    case xnn::XNodeUnion::XNNCopy:
      return nodes::copy(graph, *node.xnode_union_as_XNNCopy());
    case xnn::XNodeUnion::XNNGlobalAvgPooling2d:
      return nodes::global_average(graph, *node.xnode_union_as_XNNGlobalAvgPooling2d());
    case xnn::XNodeUnion::XNNAvgPooling2d:
      return nodes::average_pooling(graph, node, *node.xnode_union_as_XNNAvgPooling2d());
    case xnn::XNodeUnion::XNNMaxPooling2d:
      return nodes::max_pooling(graph, node, *node.xnode_union_as_XNNMaxPooling2d());
    case xnn::XNodeUnion::XNNArgMaxPooling2d:
      return nodes::argmax_pooling(graph, *node.xnode_union_as_XNNArgMaxPooling2d());
    case xnn::XNodeUnion::XNNELU:
      return nodes::elu(graph, *node.xnode_union_as_XNNELU());
    case xnn::XNodeUnion::XNNLeakyReLU:
      return nodes::leaky_relu(graph, *node.xnode_union_as_XNNLeakyReLU());
    case xnn::XNodeUnion::XNNStaticTranspose:
      return nodes::transpose(graph, *node.xnode_union_as_XNNStaticTranspose());
    case xnn::XNodeUnion::XNNStaticSlice:
      return nodes::slice(graph, *node.xnode_union_as_XNNStaticSlice());
    case xnn::XNodeUnion::XNNStaticReshape:
      return nodes::reshape(graph, *node.xnode_union_as_XNNStaticReshape());
    case xnn::XNodeUnion::XNNStaticResizeBilinear2D:
      return nodes::resize_bilinear(graph, *node.xnode_union_as_XNNStaticResizeBilinear2D());
    case xnn::XNodeUnion::XNNStaticConstantPad:
      return nodes::pad(graph, *node.xnode_union_as_XNNStaticConstantPad());
    case xnn::XNodeUnion::XNNConcatenate2:
      return nodes::concatenate(graph, *node.xnode_union_as_XNNConcatenate2(), 2);
    case xnn::XNodeUnion::XNNConcatenate3:
      return nodes::concatenate(graph, *node.xnode_union_as_XNNConcatenate3(), 3);
    case xnn::XNodeUnion::XNNConcatenate4:
      return nodes::concatenate(graph, *node.xnode_union_as_XNNConcatenate4(), 4);
    case xnn::XNodeUnion::XNNConcatenate5:
      return nodes::concatenate(graph, *node.xnode_union_as_XNNConcatenate5(), 5);
    case xnn::XNodeUnion::XNNScaledDotProductAttention:
      return nodes::attention(graph, *node.xnode_union_as_XNNScaledDotProductAttention());
    case xnn::XNodeUnion::XNNBatchMatrixMultiply:
      return nodes::batch_matrix_multiply(graph, *node.xnode_union_as_XNNBatchMatrixMultiply());
    default:
      return xnn_status_unsupported_parameter;
  }
}

}  // namespace slipway::lean
