// What moves elements and computes none, and resizing.
#include "lean/xnnpack/nodes.h"

namespace slipway::lean::nodes {

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

}  // namespace slipway::lean::nodes
