// A model as far as this engine looks at it itself: what it takes and gives, its operators, and what tells
// that the XNNPACK provider would get a node wrong. Weights are not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "slipway/engine.h"

namespace slipway::onnx {

struct Attribute {
  std::int64_t integer = 0;
  float number = 0;
  std::string text;
};

struct Node {
  std::string name;
  std::string op;
  std::string domain;  // "" is ai.onnx
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, Attribute> attributes;

  // "Conv", "com.microsoft:QLinearAveragePool"
  std::string full_op() const;
  const Attribute* attribute(const std::string& wanted) const;
};

// A value of the graph; kUnknown and no rank where the file does not say.
struct Value {
  std::string kind = "tensor";  // or "sequence", "map", "optional", "sparse_tensor"
  DType dtype = DType::kUnknown;
  bool has_rank = false;
  Shape shape;            // -1: not fixed
  bool outdated = false;  // the inputs' sizes were fixed since: what is not fixed here may be by now
  // Of a constant that is one number, where the file has it: scales and zero points.
  bool has_number = false;
  double number = 0;
};

struct Graph {
  std::int64_t ir_version = 0;
  std::map<std::string, std::int64_t> opsets;  // by domain, "" is ai.onnx
  std::vector<std::string> inputs;             // those that have no initializer
  std::vector<std::string> outputs;
  std::vector<Node> nodes;
  std::vector<Node> inner_nodes;  // of branches, loops and the model's own functions
  std::unordered_map<std::string, Value> values;
  std::unordered_set<std::string> constants;  // values known before the first execution
  std::unordered_set<std::string> functions;  // operators that the model itself defines, by full_op
  std::vector<std::string> data_files;        // sorted, each once

  const Value* value(const std::string& name) const;
  std::int64_t opset(const std::string& domain) const;
};

// Adds to the constants what is computed from constants alone: ONNX Runtime folds those before it asks the
// providers.
void propagate_constants(Graph* graph);

// Whether an input has a dimension that is not fixed.
bool has_open_inputs(const Graph& graph);

// The one method that a model is: "forward".
MethodInfo method_of(const Graph& graph);

// Operators between DequantizeLinear and QuantizeLinear: the form in which exporters quantize, and the only
// one in which the XNNPACK provider takes quantized operators. ONNX Runtime makes one quantized operator of
// each.
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

 private:
  std::unordered_map<std::string, const Node*> producers_;
  std::unordered_map<std::string, std::vector<const Node*>> users_;
};

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
