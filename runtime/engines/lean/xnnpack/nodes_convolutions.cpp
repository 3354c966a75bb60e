#include <xnnpack/subgraph.h>

#include "lean/xnnpack/nodes.h"

namespace slipway::lean::nodes {

namespace {

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

// Each pixel is a row: the filter [outputs, 1, 1, inputs] is a matrix.
xnn_status pixels(const GraphBuilder& graph, const xnn::_XNNNodeConv& node, const Range& range,
                  const Layer& layer) {
  const xnn_value& filter = graph.subgraph()->values[layer.filter];
  if (filter.datatype != xnn_datatype_qcint8 || filter.quantization.channel_dimension != 0) {
    return xnn_status_invalid_parameter;
  }
  const std::size_t dims[] = {node.group_output_channels(), node.group_input_channels()};
  std::uint32_t matrix = XNN_INVALID_VALUE_ID;
  const xnn_status status = xnn_define_channelwise_quantized_tensor_value_v2(
      graph.subgraph(), filter.datatype, 0, filter.quantization.channelwise_scale, 2, 0, dims, filter.data,
      XNN_INVALID_VALUE_ID, 0, &matrix);
  return status != xnn_status_success
             ? status
             : xnn_define_fully_connected(graph.subgraph(), range.min, range.max, layer.input, matrix,
                                          layer.bias, layer.output, 0);
}

}  // namespace

xnn_status convolution(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNodeConv& node) {
  const Layer layer(graph, node);
  const Range range = range_of(outer);
  if (layer.good && graph.pixel_layers().has(node)) {
    return pixels(graph, node, range, layer);
  }
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

}  // namespace slipway::lean::nodes
