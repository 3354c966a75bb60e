#include "quantized_groups.h"

#include <cstdint>

namespace slipway::onnx {
namespace {

const std::string& first_input(const Node& node) {
  static const std::string none;
  return node.inputs.empty() ? none : node.inputs.front();
}

bool is(const Node* node, const char* op) {
  return node != nullptr && node->domain.empty() && node->op == op;
}

}  // namespace

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

bool Neighbours::inside(const Node& node) const {
  if (is(&node, "QuantizeLinear")) {
    const Node* before = producer(first_input(node));
    return before != nullptr && quantized(*before);
  }
  const auto found = node.outputs.empty() ? users_.end() : users_.find(node.outputs.front());
  if (!is(&node, "DequantizeLinear") || found == users_.end()) {
    return false;
  }
  for (const Node* user : found->second) {
    if (quantized(*user)) {
      return true;
    }
  }
  return false;
}

std::string quantized_name(const Node& node) {
  if (node.op == "MaxPool" || node.op == "Resize") {
    return node.op;
  }
  if (node.op == "Conv" || node.op == "MatMul") {
    return "QLinear" + node.op;
  }
  return node.op == "Gemm" ? "com.microsoft:QGemm" : "com.microsoft:QLinear" + node.op;
}

}  // namespace slipway::onnx
