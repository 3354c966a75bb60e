// A model as far as this engine looks at it itself: what it takes and gives, its operators, and what tells
// that the XNNPACK provider would get a node wrong. Weights are not kept.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::onnx {

constexpr char kXnnpack[] = "XnnpackExecutionProvider";
constexpr char kCpu[] = "CPUExecutionProvider";

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
  Shape shape;                          // -1: not fixed
  std::vector<std::string> size_names;  // of sizes that are not fixed, one a dimension; may be empty
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
  // The sizes of all inputs are fixed, and those of other values follow from them, whatever the file says.
  bool settled = false;

  const Value* value(const std::string& name) const;
  std::int64_t opset(const std::string& domain) const;
};

// Whether the file is of ONNX Runtime's own format (.ort), by its identifier "ORTM", whatever its name.
bool is_ort(const std::string& path);

// Reads an .onnx file from end to end. kFile when it is none, or damaged.
Result<Graph> read_model(const std::string& path);

// The same of a serialized ModelProto; `path` is for the messages.
Result<Graph> read_onnx(const std::uint8_t* data, std::size_t size, const std::string& path);

// Adds what is computed from constants alone: ONNX Runtime folds those nodes before it asks the providers.
void propagate_constants(Graph* graph);

// Whether an input has a dimension that is not fixed.
bool has_open_inputs(const Graph& graph);

// Sizes by their names in the model.
using NamedSizes = std::map<std::string, std::int64_t>;

// Fixes the inputs' open sizes that have a name to those of `shapes`, one shape an input, and with them all
// sizes of these names: ONNX Runtime does the same when it is told them.
NamedSizes fix_sizes(const std::vector<Shape>& shapes, Graph* graph);

// With the one method that a model is, "forward". `size`: of the file, in bytes.
ProgramInfo program_info(const Graph& graph, std::uint64_t size);

// Of ONNX Runtime's types, numbered as the file's. kUnknown: strings, complex numbers, less than a byte.
DType to_dtype(std::int64_t type);
ONNXTensorElementDataType to_element_type(DType dtype);

}  // namespace slipway::onnx
