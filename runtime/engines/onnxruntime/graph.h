// A model as far as this engine looks at it itself: what it takes and gives, its operators, and what decides
// which provider can run them. Weights are not kept.
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
  std::vector<std::int64_t> integers;
};

struct Node {
  std::string name;
  std::string op;
  std::string domain;  // "" is ai.onnx
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, Attribute> attributes;
  std::size_t index = 0;  // ONNX Runtime's number of it

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

// The one method that a model is: "forward".
MethodInfo method_of(const Graph& graph);

}  // namespace slipway::onnx
