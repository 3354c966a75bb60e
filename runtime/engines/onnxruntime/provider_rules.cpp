#include "provider_rules.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "quantized_groups.h"

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
  const bool one = dimensions == 3 && node.op == "Conv";  // not documented, and taken
  if (dimensions >= 0 && dimensions != 4 && !one) {
    return "only 2D is supported, and this one is " + std::to_string(dimensions - 2) + "D";
  }
  return "";
}

// Of an image: the provider makes its kernels before the first execution.
std::string fixed_image(const Graph& graph, const Node& node) {
  const Value* value = graph.value(input(node, 0));
  if (value == nullptr || !value->has_rank) {
    return "";
  }
  for (std::size_t i = 1; i < value->shape.size(); ++i) {
    if (value->shape[i] < 0) {
      return "channels, height and width must be fixed, and dimension " + std::to_string(i) + " is not";
    }
  }
  return "";
}

std::string floating(const Graph& graph, const Node& node) {
  const Value* value = graph.value(input(node, 0));
  const DType dtype = value == nullptr ? DType::kUnknown : value->dtype;
  return dtype == DType::kUnknown || dtype == DType::kFloat32 || dtype == DType::kFloat16
             ? ""
             : "only float32 and float16 are supported, unless quantized";
}

std::string text(const Node& node, const char* name, const char* otherwise) {
  const Attribute* attribute = node.attribute(name);
  return attribute == nullptr ? otherwise : attribute->text;
}

std::string padding(const Graph& /*graph*/, const Node& node) {
  return text(node, "auto_pad", "NOTSET") == "SAME_LOWER" ? "padding by SAME_LOWER is not supported" : "";
}

bool is_set(const Node& node, const char* name) {
  const Attribute* attribute = node.attribute(name);
  return attribute != nullptr && attribute->integer != 0;
}

std::string rounded_down(const Graph& /*graph*/, const Node& node) {
  return is_set(node, "ceil_mode") ? "an output size that is rounded up (ceil_mode) is not supported" : "";
}

std::string without_indices(const Graph& /*graph*/, const Node& node) {
  return node.outputs.size() > 1 && !node.outputs[1].empty() ? "the indices are not supported" : "";
}

std::string padding_left_out(const Graph& /*graph*/, const Node& node) {
  return is_set(node, "count_include_pad") ? "padding must not count (count_include_pad)" : "";
}

std::string constant_product(const Graph& graph, const Node& node) {
  return constant_inputs(graph, node, {1, 2}, node.op == "Gemm" ? "B and C" : "B");
}

std::string unscaled(const Graph& /*graph*/, const Node& node) {
  for (const char* name : {"alpha", "beta"}) {
    const Attribute* attribute = node.attribute(name);
    if (attribute != nullptr && attribute->number != 1.0F) {
      return std::string(name) + " must be 1";
    }
  }
  return "";
}

std::string coordinates(const Graph& graph, const Node& node) {
  const std::string mode = text(node, "coordinate_transformation_mode", "half_pixel");
  if (mode != "half_pixel" && mode != "asymmetric" && mode != "align_corners" &&
      mode != "pytorch_half_pixel") {
    return "coordinates by " + mode + " are not supported";
  }
  return constant_inputs(graph, node, {2, 3}, "scales and sizes");
}

// Seen with 1.21 of all of these; the documentation promises them.
std::string only_as_float(const Graph& /*graph*/, const Node& node) {
  return "only " + node.op.substr(7) + " between DequantizeLinear and QuantizeLinear is taken";
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
  if (dimensions >= 0 && dimensions != 4) {  // 2D is documented, and not taken
    return "only 4D inputs are supported, and this one has " + std::to_string(dimensions) + " dimensions";
  }
  return "";
}

const std::unordered_map<std::string, std::vector<Condition>>& rules() {
  static const std::unordered_map<std::string, std::vector<Condition>> table = {
      {"AveragePool",
       {two_spatial_dimensions, fixed_image, padding, rounded_down, padding_left_out, floating}},
      {"Conv", {two_spatial_dimensions, constant_weights, fixed_image, padding, floating}},
      {"ConvTranspose", {two_spatial_dimensions, constant_weights, fixed_image, padding, floating}},
      {"MaxPool", {two_spatial_dimensions, fixed_image, padding, rounded_down, without_indices, floating}},
      {"Softmax", {last_axis, floating}},
      {"QLinearConv", {two_spatial_dimensions, quantized_convolution, only_as_float}},
      {"Resize", {bilinear, coordinates, floating}},
      {"Gemm", {two_dimensions, constant_product, unscaled, floating}},
      {"MatMul", {two_dimensions, constant_product, floating}},
      {"com.microsoft:QLinearAveragePool", {two_spatial_dimensions, constant_quantization, only_as_float}},
      {"com.microsoft:QLinearSoftmax", {constant_quantization, only_as_float}},
      {"com.microsoft:QLinearConvTranspose", {two_spatial_dimensions, quantized_convolution, only_as_float}},
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

namespace {

// Whether the provider computes the activation in the node before it, which it takes.
bool is_fused(const Graph& graph, const Neighbours& neighbours, const Node& node,
              const std::unordered_set<const Node*>& taken) {
  const Node* before = neighbours.maker(input(node, 0));
  const bool limits =
      node.op == "Relu" || (node.op == "Clip" && !input(node, 1).empty() &&
                            is_constant(graph, input(node, 1)) && is_constant(graph, input(node, 2)));
  return limits && node.domain.empty() && before != nullptr && taken.count(before) != 0 &&
         (before->op == "Conv" || before->op == "MaxPool" || before->op == "AveragePool") &&
         neighbours.only_user(*before) == &node;
}

bool is_folded(const Graph& graph, const Node& node) {
  return !node.outputs.empty() &&
         std::all_of(node.outputs.begin(), node.outputs.end(),
                     [&](const std::string& name) { return graph.constants.count(name) != 0; });
}

}  // namespace

std::vector<NodeInfo> expected_placement(const Graph& graph, const Guard& guard) {
  const Neighbours neighbours(graph);
  std::unordered_set<const Node*> taken;
  std::vector<NodeInfo> placed;
  for (const Node& node : graph.nodes) {
    if (is_folded(graph, node) || neighbours.inside(node)) {
      continue;
    }
    if (is_fused(graph, neighbours, node, taken)) {
      placed.push_back({node.name, node.op, kXnnpack, ""});
      continue;
    }
    const bool quantized = neighbours.quantized(node);
    std::string why =
        quantized && rules().count(node.op) != 0 ? why_not_quantized(graph, neighbours, node) : "";
    if (why.empty() && !(quantized && node.op == "AveragePool")) {
      why = why_not_xnnpack(graph, node);
    }
    if (why.empty()) {
      why = guard.why(node);
    }
    if (why.empty() && !quantized) {
      taken.insert(&node);
    }
    const char* provider = why.empty() ? kXnnpack : kCpu;
    placed.push_back(
        {node.name, quantized ? quantized_name(node) : node.full_op(), provider, std::move(why)});
  }
  return placed;
}

}  // namespace slipway::onnx
