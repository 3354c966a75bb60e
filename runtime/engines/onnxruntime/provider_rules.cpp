#include "provider_rules.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

namespace slipway::onnx {
namespace {

// A documented condition: empty when the node meets it, else what is wrong.
using Condition = std::string (*)(const Graph&, const Node&);

std::string input(const Node& node, std::size_t index) {
  return index < node.inputs.size() ? node.inputs[index] : std::string();
}

bool is_constant(const Graph& graph, const std::string& name) {
  return name.empty() || graph.constants.count(name) != 0;
}

// The rank of an input, or -1 when the file does not tell.
std::int64_t rank(const Graph& graph, const std::string& name) {
  const Value* value = graph.value(name);
  return value == nullptr || !value->has_rank ? -1 : static_cast<std::int64_t>(value->shape.size());
}

std::string constant_inputs(const Graph& graph, const Node& node, std::initializer_list<std::size_t> indices,
                            const char* what) {
  for (const std::size_t index : indices) {
    if (!is_constant(graph, input(node, index))) {
      return std::string(what) + " must be constant, and input " + std::to_string(index) + " (" +
             input(node, index) + ") is computed";
    }
  }
  return "";
}

// Of a 2D convolution's or pool's input: batch, channels, height, width.
std::string two_spatial_dimensions(const Graph& graph, const Node& node) {
  std::int64_t dimensions = rank(graph, input(node, 0));
  if (dimensions < 0 && node.op.find("Conv") != std::string::npos) {
    dimensions =
        rank(graph, input(node, node.op.rfind("QLinear", 0) == 0 ? 3 : 1));  // the weights' is the same
  }
  if (dimensions < 0) {
    const Attribute* kernel = node.attribute("kernel_shape");
    dimensions = kernel == nullptr ? -1 : static_cast<std::int64_t>(kernel->integers.size()) + 2;
  }
  if (dimensions >= 0 && dimensions != 4) {
    return "only 2D is supported, and this one is " + std::to_string(dimensions - 2) + "D";
  }
  return "";
}

std::string constant_weights(const Graph& graph, const Node& node) {
  return constant_inputs(graph, node, {1, 2}, "weights and bias");
}

std::string quantized_convolution(const Graph& graph, const Node& node) {
  return constant_inputs(graph, node, {1, 2, 3, 4, 5, 6, 7, 8},
                         "weights, bias, quantization scales and zero points");
}

std::string constant_quantization(const Graph& graph, const Node& node) {
  return constant_inputs(graph, node, {1, 2, 3, 4}, "quantization scales and zero points");
}

std::string two_dimensions(const Graph& graph, const Node& node) {
  for (const std::size_t index : {std::size_t{0}, std::size_t{1}}) {
    const std::int64_t dimensions = rank(graph, input(node, index));
    if (dimensions >= 0 && dimensions != 2) {
      return "only 2D operands are supported, and input " + std::to_string(index) + " has " +
             std::to_string(dimensions) + " dimensions";
    }
  }
  return "";
}

std::string last_axis(const Graph& graph, const Node& node) {
  const std::int64_t dimensions = rank(graph, input(node, 0));
  if (node.domain.empty() && graph.opset("") < 13) {
    return "";
  }
  const Attribute* axis = node.attribute("axis");
  const std::int64_t given = axis == nullptr ? -1 : axis->integer;
  if (given == -1 || dimensions < 0 || given == dimensions - 1) {
    return "";
  }
  return "from opset 13 only the last axis is supported, and this one is " + std::to_string(given) + " of " +
         std::to_string(dimensions);
}

std::string bilinear(const Graph& graph, const Node& node) {
  const Attribute* mode = node.attribute("mode");
  const std::string given = mode == nullptr ? "nearest" : mode->text;
  if (given != "linear") {
    return "only bilinear mode is supported, and this one is " + given;
  }
  const std::int64_t dimensions = rank(graph, input(node, 0));
  if (dimensions >= 0 && dimensions != 2 && dimensions != 4) {
    return "only 2D and 4D inputs are supported, and this one has " + std::to_string(dimensions) +
           " dimensions";
  }
  return "";
}

const std::unordered_map<std::string, std::vector<Condition>>& rules() {
  static const std::unordered_map<std::string, std::vector<Condition>> table = {
      {"AveragePool", {two_spatial_dimensions}},
      {"Conv", {two_spatial_dimensions, constant_weights}},
      {"ConvTranspose", {two_spatial_dimensions, constant_weights}},
      {"MaxPool", {two_spatial_dimensions}},
      {"Softmax", {last_axis}},
      {"QLinearConv", {two_spatial_dimensions, quantized_convolution}},
      {"Resize", {bilinear}},
      {"Gemm", {two_dimensions}},
      {"MatMul", {two_dimensions}},
      {"com.microsoft:QLinearAveragePool", {two_spatial_dimensions, constant_quantization}},
      {"com.microsoft:QLinearSoftmax", {constant_quantization}},
      {"com.microsoft:QLinearConvTranspose", {two_spatial_dimensions, quantized_convolution}},
  };
  return table;
}

// What happens to other operators around a quantized one: they become part of it.
bool is_quantization(const Node& node) {
  return node.op == "QuantizeLinear" || node.op == "DequantizeLinear";
}

}  // namespace

std::string why_not_xnnpack(const Graph& graph, const Node& node) {
  const auto found = rules().find(node.full_op());
  if (found == rules().end()) {
    return is_quantization(node)
               ? "the provider takes it only as part of a quantized operator that it supports"
               : "the provider has no " + node.full_op();
  }
  for (const Condition condition : found->second) {
    std::string reason = condition(graph, node);
    if (!reason.empty()) {
      return reason;
    }
  }
  return "";
}

bool is_compute_heavy(const std::string& full_op) {
  static const char* const kHeavy[] = {
      "Conv",
      "ConvInteger",
      "ConvTranspose",
      "Einsum",
      "GRU",
      "Gemm",
      "LSTM",
      "MatMul",
      "MatMulInteger",
      "QLinearConv",
      "QLinearMatMul",
      "RNN",
      "com.microsoft:Attention",
      "com.microsoft:DynamicQuantizeLSTM",
      "com.microsoft:DynamicQuantizeMatMul",
      "com.microsoft:FusedConv",
      "com.microsoft:FusedGemm",
      "com.microsoft:FusedMatMul",
      "com.microsoft:GroupQueryAttention",
      "com.microsoft:MatMulIntegerToFloat",
      "com.microsoft:MatMulNBits",
      "com.microsoft:MultiHeadAttention",
      "com.microsoft:NhwcFusedConv",
      "com.microsoft:QAttention",
      "com.microsoft:QGemm",
      "com.microsoft:QLinearConv",
      "com.microsoft:QLinearConvTranspose",
      "com.microsoft.nchwc:Conv",
  };
  return std::find(std::begin(kHeavy), std::end(kHeavy), full_op) != std::end(kHeavy);
}

std::vector<NodeInfo> expected_placement(const Graph& graph, const Guard& guard) {
  std::vector<NodeInfo> placed;
  for (const Node& node : graph.nodes) {
    const bool folded = !node.outputs.empty() &&
                        std::all_of(node.outputs.begin(), node.outputs.end(), [&](const std::string& name) {
                          return graph.constants.count(name) != 0;
                        });
    if (!folded) {
      std::string why = why_not_xnnpack(graph, node);
      if (why.empty()) {
        why = guard.why(node);
      }
      const char* provider = why.empty() ? kXnnpack : kCpu;
      placed.push_back({node.name, node.full_op(), provider, std::move(why)});
    }
  }
  return placed;
}

}  // namespace slipway::onnx
