#include "graph.h"

#include <algorithm>
#include <set>
#include <utility>

namespace slipway::onnx {
namespace {

constexpr std::pair<DType, ONNXTensorElementDataType> kTypes[] = {
    {DType::kFloat32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
    {DType::kUInt8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
    {DType::kInt8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},
    {DType::kUInt16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16},
    {DType::kInt16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16},
    {DType::kInt32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
    {DType::kInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {DType::kBool, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL},
    {DType::kFloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},
    {DType::kFloat64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
    {DType::kUInt32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32},
    {DType::kUInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},
    {DType::kBFloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16},
};

ValueSpec spec_of(const Graph& graph, const std::string& name) {
  ValueSpec spec;
  const Value* value = graph.value(name);
  if (value == nullptr) {
    spec.kind = "unknown";
    return spec;
  }
  spec.kind = value->kind;
  spec.dtype = value->kind == "tensor" ? value->dtype : DType::kUnknown;
  if (value->kind == "tensor" && value->dtype == DType::kUnknown) {
    spec.kind = "tensor of strings or of another type without a file form";
  }
  spec.shape = value->shape;
  for (std::int64_t& size : spec.shape) {
    spec.ranges.push_back(size < 0 ? SizeRange{} : SizeRange{size, size});
    if (size < 0) {
      // Not fixed: one is what a batch or a sequence may always have.
      size = 1;
      spec.dynamism = Dynamism::kUnbounded;
    }
  }
  return spec;
}

// Nodes that ONNX Runtime does not fold although all their inputs are constant.
bool is_never_folded(const std::string& op) {
  static const std::set<std::string> kOperators{"QuantizeLinear",   "DequantizeLinear", "RandomNormal",
                                                "RandomNormalLike", "RandomUniform",    "RandomUniformLike",
                                                "Multinomial",      "Bernoulli",        "Dropout"};
  return kOperators.count(op) != 0;
}

// Operators whose output is as large as what their inputs hold says.
bool is_sized_by_data(const Node& node) {
  static const std::set<std::string> kOperators{"Compress", "If",     "Loop", "NonMaxSuppression",
                                                "NonZero",  "Unique", "Scan"};
  return kOperators.count(node.op) != 0;
}

}  // namespace

std::string Node::full_op() const {
  return domain.empty() ? op : domain + ":" + op;
}

const Attribute* Node::attribute(const std::string& wanted) const {
  const auto found = attributes.find(wanted);
  return found == attributes.end() ? nullptr : &found->second;
}

const Value* Graph::value(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

std::int64_t Graph::opset(const std::string& domain) const {
  const auto found = opsets.find(domain);
  return found == opsets.end() ? 0 : found->second;
}

void propagate_constants(Graph* graph) {
  for (const Node& node : graph->nodes) {  // sorted topologically, as ONNX requires
    const bool known = std::all_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& name) {
      return name.empty() || graph->constants.count(name) != 0;
    });
    if (known && !is_never_folded(node.op) && (!node.inputs.empty() || node.op == "Constant")) {
      graph->constants.insert(node.outputs.begin(), node.outputs.end());
    }
  }
}

bool has_open_inputs(const Graph& graph) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](const std::string& name) {
    const Value* value = graph.value(name);
    return value == nullptr || !value->has_rank ||
           std::any_of(value->shape.begin(), value->shape.end(), [](auto size) { return size < 0; });
  });
}

NamedSizes fix_sizes(const std::vector<Shape>& shapes, Graph* graph) {
  NamedSizes sizes;
  for (std::size_t i = 0; i < shapes.size() && i < graph->inputs.size(); ++i) {
    const Value& value = graph->values[graph->inputs[i]];
    for (std::size_t d = 0; d < value.shape.size() && d < shapes[i].size(); ++d) {
      if (value.shape[d] < 0 && !value.size_names[d].empty()) {
        sizes[value.size_names[d]] = shapes[i][d];
      }
    }
  }
  for (auto& [name, value] : graph->values) {
    for (std::size_t d = 0; d < value.size_names.size(); ++d) {
      const auto found = sizes.find(value.size_names[d]);
      value.shape[d] = found == sizes.end() ? value.shape[d] : found->second;
    }
  }
  graph->settled = !sizes.empty() && !has_open_inputs(*graph) &&
                   std::none_of(graph->nodes.begin(), graph->nodes.end(), is_sized_by_data);
  return sizes;
}

ProgramInfo program_info(const Graph& graph, std::uint64_t size) {
  ProgramInfo info;
  info.size = size;
  info.version = static_cast<std::uint64_t>(graph.ir_version);
  for (const auto& [domain, version] : graph.opsets) {
    info.opsets.emplace_back(domain.empty() ? "ai.onnx" : domain, version);
  }
  info.data_files = graph.data_files;
  MethodInfo& method = info.methods.emplace_back();
  method.name = "forward";
  for (const std::string& name : graph.inputs) {
    method.inputs.push_back(spec_of(graph, name));
  }
  for (const std::string& name : graph.outputs) {
    method.outputs.push_back(spec_of(graph, name));
  }
  std::set<std::string> operators;
  for (const auto* nodes : {&graph.nodes, &graph.inner_nodes}) {
    for (const Node& node : *nodes) {
      if (graph.functions.count(node.full_op()) == 0) {
        operators.insert(node.full_op());
      }
    }
  }
  method.operators.assign(operators.begin(), operators.end());
  method.backends = {kCpu};  // it runs what the XNNPACK provider leaves
  return info;
}

DType to_dtype(std::int64_t type) {
  for (const auto& [dtype, element] : kTypes) {
    if (element == type) {
      return dtype;
    }
  }
  return DType::kUnknown;
}

ONNXTensorElementDataType to_element_type(DType wanted) {
  for (const auto& [dtype, element] : kTypes) {
    if (dtype == wanted) {
      return element;
    }
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

}  // namespace slipway::onnx
