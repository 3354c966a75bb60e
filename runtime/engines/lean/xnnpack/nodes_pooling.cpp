#include <cmath>

#include "lean/xnnpack/nodes.h"

namespace slipway::lean::nodes {

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
  if (!id.good()) {
    return xnn_status_invalid_parameter;
  }
  const bool moves = node.stride_height() != 1 || node.stride_width() != 1 || node.padding_top() != 0 ||
                     node.padding_right() != 0 || node.padding_bottom() != 0 || node.padding_left() != 0;
  if (node.pooling_height() == 1 && node.pooling_width() == 1 && !moves) {
    // The largest of one element is this element. XNNPACK refuses it as meaningless, exporters make it.
    if (std::isinf(range.min) && std::isinf(range.max)) {
      return xnn_define_copy(graph.subgraph(), input, output, 0);
    }
    xnn_unary_params params{};
    params.clamp.min = range.min;
    params.clamp.max = range.max;
    return xnn_define_unary(graph.subgraph(), xnn_unary_clamp, &params, input, output, 0);
  }
  return xnn_define_max_pooling_2d(
      graph.subgraph(), node.padding_top(), node.padding_right(), node.padding_bottom(), node.padding_left(),
      node.pooling_height(), node.pooling_width(), node.stride_height(), node.stride_width(),
      node.dilation_height(), node.dilation_width(), range.min, range.max, input, output, node.flags());
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

}  // namespace slipway::lean::nodes
