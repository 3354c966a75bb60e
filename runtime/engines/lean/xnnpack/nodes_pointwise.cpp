// Element by element, and along the last dimension (softmax).
#include "lean/xnnpack/nodes.h"

namespace slipway::lean::nodes {

xnn_status unary(const GraphBuilder& graph, const xnn::_XNNNode1x1& node, xnn_unary_operator type,
                 const xnn_unary_params* params) {
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

namespace {

// XNNPACK's own flags of a conversion whose result only 4-bit layers read: on a processor with KleidiAI's
// kernels for them, it is made in these kernels' packed form (src/xnnpack/internal.h of the pinned XNNPACK).
constexpr std::uint32_t kMaybePackForQc4w = 0x80;
constexpr std::uint32_t kMaybePackForQb4w = 0x100;

}  // namespace

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

namespace {

template <typename Node>
xnn_status with_slope(const GraphBuilder& graph, const Node& node, xnn_unary_operator type,
                      const xnn_unary_params& params) {
  Ids id(graph);
  const std::uint32_t input = id(node.input_id());
  const std::uint32_t output = id.output(node.output_id());
  return id.good() ? xnn_define_unary(graph.subgraph(), type, &params, input, output, node.flags())
                   : xnn_status_invalid_parameter;
}

}  // namespace

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

}  // namespace slipway::lean::nodes
