#include "layer.h"

namespace proof {

std::vector<std::size_t> Layer::InputShape() const {
  if (kind == Kind::kFullyConnected) return {batch, inputs};
  return {batch, height, width, inputs};
}

std::vector<std::size_t> Layer::OutputShape() const {
  if (kind == Kind::kFullyConnected) return {batch, outputs};
  return {batch, OutputHeight(), OutputWidth(), outputs};
}

std::vector<std::size_t> Layer::WeightShape() const {
  if (kind == Kind::kFullyConnected) return {outputs, inputs};
  if (kind == Kind::kDepthwise) return {1, kernel, kernel, outputs};
  return {outputs, kernel, kernel, InputsPerGroup()};
}

std::string Layer::OpName() const {
  if (kind == Kind::kFullyConnected) return "fully_connected";
  return kind == Kind::kDepthwise ? "depthwise_convolution" : "convolution";
}

std::string Layer::ShapeName() const {
  const auto text = [](std::size_t value) { return std::to_string(value); };
  if (kind == Kind::kFullyConnected) {
    return "m" + text(batch) + "_k" + text(inputs) + "_n" + text(outputs);
  }
  std::string name = text(kernel) + "x" + text(kernel);
  if (stride > 1) name += "s" + text(stride);
  if (groups > 1 && kind == Kind::kConvolution) name += "g" + text(groups);
  name += "_c" + text(inputs);
  return kind == Kind::kDepthwise ? name : name + "_o" + text(outputs);
}

xnn_status Layer::Define(xnn_subgraph_t subgraph, std::uint32_t input, std::uint32_t weights,
                         std::uint32_t bias, std::uint32_t output) const {
  const auto k = static_cast<std::uint32_t>(kernel), s = static_cast<std::uint32_t>(stride);
  const auto p = static_cast<std::uint32_t>(padding);
  switch (kind) {
    case Kind::kFullyConnected:
      return xnn_define_fully_connected(subgraph, least, most, input, weights, bias, output, 0);
    case Kind::kDepthwise:
      return xnn_define_depthwise_convolution_2d(subgraph, p, p, p, p, k, k, s, s, 1, 1, 1, inputs, least,
                                                 most, input, weights, bias, output, 0);
    case Kind::kConvolution:
      return xnn_define_convolution_2d(subgraph, p, p, p, p, k, k, s, s, 1, 1,
                                       static_cast<std::uint32_t>(groups), InputsPerGroup(), outputs / groups,
                                       least, most, input, weights, bias, output, 0);
  }
  return xnn_status_invalid_parameter;
}

}  // namespace proof
