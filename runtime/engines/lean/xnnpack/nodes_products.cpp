// Matrix products: fully-connected layers, batches, attention.
#include "lean/xnnpack/given_layer.h"
#include "lean/xnnpack/nodes.h"

namespace slipway::lean::nodes {

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

}  // namespace slipway::lean::nodes
