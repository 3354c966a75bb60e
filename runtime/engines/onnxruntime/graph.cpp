#include "graph.h"

#include <algorithm>
#include <set>

#include "provider_table.h"

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
    if (known && !contains(never_folded(), node.op) && (!node.inputs.empty() || node.op == "Constant")) {
      graph->constants.insert(node.outputs.begin(), node.outputs.end());
    }
  }
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

}  // namespace slipway::onnx
