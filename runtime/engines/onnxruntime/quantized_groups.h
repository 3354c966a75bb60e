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
  const Node* producer(const std::string& value) const;
  // The nodes that read a value, each as often as it does.
  std::vector<const Node*> users(const std::string& value) const;
  // The node's only user; null when there are none or several.
  const Node* only_user(const Node& node) const;

  // Whether the node, which is neither of the two itself, stands between DequantizeLinear and QuantizeLinear.
  bool quantized(const Node& node) const;
  // Whether this QuantizeLinear or DequantizeLinear becomes part of a quantized operator.
  bool inside(const Node& node) const;

 private:
  std::unordered_map<std::string, const Node*> producers_;
  std::unordered_map<std::string, std::vector<const Node*>> users_;
};

// What ONNX Runtime makes of a quantized node: "QLinearConv" of Conv.
std::string quantized_name(const Node& node);

// Whether it is a QuantizeLinear or a DequantizeLinear; false for null.
bool is_edge(const Node* node);

// How a QuantizeLinear or DequantizeLinear quantizes: the integers' type, and whether there are several
// scales.
struct Step {
  DType dtype = DType::kUnknown;
  bool several = false;
};
Step step_of(const Graph& graph, const Node& edge);

}  // namespace slipway::onnx
