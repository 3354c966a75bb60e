#include "quantized_groups.h"

#include <cstdint>
#include <set>
#include <utility>

namespace slipway::onnx {
namespace {

const std::string& first_input(const Node& node) {
  static const std::string none;
  return node.inputs.empty() ? none : node.inputs.front();
}

bool is(const Node* node, const char* op) {
  return node != nullptr && node->domain.empty() && node->op == op;
}

// How a QuantizeLinear or DequantizeLinear counts: the integers' type, and whether there are several scales.
using Step = std::pair<DType, bool>;

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

}  // namespace

Neighbours::Neighbours(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (const std::string& output : node.outputs) {
      makers_[output] = &node;
    }
    for (const std::string& input : node.inputs) {
      users_[input].push_back(&node);
    }
  }
}

const Node* Neighbours::maker(const std::string& value) const {
  const auto found = makers_.find(value);
  return found == makers_.end() ? nullptr : found->second;
}

const Node* Neighbours::only_user(const Node& node) const {
  const auto found = node.outputs.empty() ? users_.end() : users_.find(node.outputs.front());
  return found == users_.end() || found->second.size() != 1 ? nullptr : found->second.front();
}

bool Neighbours::quantized(const Node& node) const {
  return node.op != "QuantizeLinear" && node.op != "DequantizeLinear" &&
         is(maker(first_input(node)), "DequantizeLinear") && is(only_user(node), "QuantizeLinear");
}

bool Neighbours::inside(const Node& node) const {
  if (is(&node, "QuantizeLinear")) {
    const Node* before = maker(first_input(node));
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

std::string why_not_quantized(const Graph& graph, const Neighbours& neighbours, const Node& node) {
  if (node.op == "Gemm" || node.op == "MatMul") {
    return "the provider has " + node.op + " in float only";
  }
  std::set<Step> steps = {step_of(graph, *neighbours.only_user(node))};
  const bool convolution = node.op == "Conv" || node.op == "ConvTranspose";
  for (std::size_t i = 0; i < node.inputs.size() && i < (convolution ? 2U : 1U); ++i) {
    const Node* maker = neighbours.maker(node.inputs[i]);
    if (is(maker, "DequantizeLinear")) {
      steps.insert(step_of(graph, *maker));
    }
  }
  std::set<DType> types;
  bool channels = false;
  for (const auto& [dtype, several] : steps) {
    types.insert(dtype);
    channels = channels || several;
  }
  const bool int8 = types == std::set<DType>{DType::kInt8};
  const bool uint8 = types == std::set<DType>{DType::kUInt8};
  if (node.op == "Conv" && !(int8 || (uint8 && !channels))) {
    return "only int8, or uint8 with one scale, is supported throughout";
  }
  if (node.op == "ConvTranspose" && !((int8 || uint8) && !channels)) {
    return "only int8 or uint8 with one scale is supported";
  }
  if (node.op != "AveragePool" && node.op != "Softmax") {
    return "";
  }
  const Attribute* counted = node.attribute("count_include_pad");
  if (!uint8) {
    return "only uint8 is supported";
  }
  return node.op == "AveragePool" && (counted == nullptr || counted->integer == 0)
             ? "quantized, it must count the padding (count_include_pad)"
             : "";
}

}  // namespace slipway::onnx
