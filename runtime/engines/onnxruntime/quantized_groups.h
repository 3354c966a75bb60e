// Operators between DequantizeLinear and QuantizeLinear: the form in which exporters quantize, and the only
// one in which the XNNPACK provider takes quantized operators. ONNX Runtime makes one quantized operator of
// each.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph.h"

namespace slipway::onnx {

class Neighbours {
 public:
  explicit Neighbours(const Graph& graph);

  // The node that makes a value; null for inputs and initializers.
  const Node* maker(const std::string& value) const;
  // The node's only user; null when there are none or several.
  const Node* only_user(const Node& node) const;

  // Whether the node, which is neither of the two itself, stands between DequantizeLinear and QuantizeLinear.
  bool quantized(const Node& node) const;
  // Whether this QuantizeLinear or DequantizeLinear becomes part of a quantized operator.
  bool inside(const Node& node) const;

 private:
  std::unordered_map<std::string, const Node*> makers_;
  std::unordered_map<std::string, std::vector<const Node*>> users_;
};

// What ONNX Runtime makes of a quantized node: "QLinearConv" of Conv.
std::string quantized_name(const Node& node);

// Why the provider does not take a quantized node for how it is quantized; empty when it does. 1.21 takes
// int8 convolutions, those with a scale for each channel included, and otherwise uint8 with one scale.
std::string why_not_quantized(const Graph& graph, const Neighbours& neighbours, const Node& node);

}  // namespace slipway::onnx
