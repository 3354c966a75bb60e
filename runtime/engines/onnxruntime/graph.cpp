#include "graph.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace slipway::onnx {
namespace {

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

const std::string& first_input(const Node& node) {
  static const std::string none;
  return node.inputs.empty() ? none : node.inputs.front();
}

bool is(const Node* node, const char* op) {
  return node != nullptr && node->domain.empty() && node->op == op;
}

// Nodes that stay although all their inputs are constant; ONNX Runtime folds the others before it asks the
// providers.
bool is_never_folded(const std::string& op) {
  static const std::set<std::string> kOperators{"QuantizeLinear",   "DequantizeLinear", "RandomNormal",
                                                "RandomNormalLike", "RandomUniform",    "RandomUniformLike",
                                                "Multinomial",      "Bernoulli",        "Dropout"};
  return kOperators.count(op) != 0;
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

MethodInfo method_of(const Graph& graph) {
  MethodInfo method;
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
  return method;
}

bool is_edge(const Node* node) {
  return is(node, "QuantizeLinear") || is(node, "DequantizeLinear");
}

Step step_of(const Graph& graph, const Node& node) {
  DType dtype = DType::kUnknown;
  for (const std::size_t index : {std::size_t{2}, std::size_t{0}}) {
    const Value* value = index < node.inputs.size() ? graph.value(node.inputs[index]) : nullptr;
    if (value != nullptr && dtype == DType::kUnknown && (index == 2 || node.op == "DequantizeLinear")) {
      dtype = value->dtype;
    }
  }
  if (dtype == DType::kUnknown && node.inputs.size() < 3) {
    dtype = DType::kUInt8;  // without a zero point
  }
  const Value* scale = node.inputs.size() > 1 ? graph.value(node.inputs[1]) : nullptr;
  std::int64_t count = 1;
  for (const std::int64_t size : scale == nullptr ? Shape() : scale->shape) {
    count *= size;
  }
  return {dtype, count != 1};
}

Neighbours::Neighbours(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (const std::string& output : node.outputs) {
      producers_[output] = &node;
    }
    for (const std::string& input : node.inputs) {
      users_[input].push_back(&node);
    }
  }
}

const Node* Neighbours::producer(const std::string& value) const {
  const auto found = producers_.find(value);
  return found == producers_.end() ? nullptr : found->second;
}

std::vector<const Node*> Neighbours::users(const std::string& value) const {
  const auto found = users_.find(value);
  return found == users_.end() ? std::vector<const Node*>() : found->second;
}

const Node* Neighbours::only_user(const Node& node) const {
  const auto found = node.outputs.empty() ? users_.end() : users_.find(node.outputs.front());
  return found == users_.end() || found->second.size() != 1 ? nullptr : found->second.front();
}

bool Neighbours::quantized(const Node& node) const {
  return node.op != "QuantizeLinear" && node.op != "DequantizeLinear" &&
         is(producer(first_input(node)), "DequantizeLinear") && is(only_user(node), "QuantizeLinear");
}

}  // namespace slipway::onnx
