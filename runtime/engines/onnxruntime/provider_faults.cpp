#include "provider_faults.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>

#include "quantized_groups.h"
#include "scalar_types.h"

namespace slipway::onnx {
namespace {

constexpr char kCrashes[] = "the XNNPACK provider crashes on it";
constexpr char kWrong[] = "the XNNPACK provider computes it wrong";
constexpr char kHalf[] =
    "the XNNPACK provider computes convolutions with a bias wrong, and refuses the whole model on a CPU "
    "without "
    "half-precision arithmetic";
constexpr char kRefuses[] = "the XNNPACK provider refuses the whole model for it";

using Makers = std::unordered_map<std::string, const Node*>;

Makers makers_of(const Graph& graph) {
  Makers makers;
  for (const Node& node : graph.nodes) {
    for (const std::string& output : node.outputs) {
      makers[output] = &node;
    }
  }
  return makers;
}

std::string input(const Node& node, std::size_t index) {
  return index < node.inputs.size() ? node.inputs[index] : std::string();
}

std::int64_t integer(const Node& node, const char* name, std::int64_t otherwise) {
  const Attribute* attribute = node.attribute(name);
  return attribute == nullptr ? otherwise : attribute->integer;
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : graph_(graph), makers_(makers_of(graph)), neighbours_(graph) {
    half_ = std::any_of(graph.values.begin(), graph.values.end(),
                        [](const auto& value) { return value.second.dtype == DType::kFloat16; });
    for (const std::string& name : graph.inputs) {
      const Value* value = graph.value(name);
      dynamic_ = dynamic_ || value == nullptr || !value->has_rank ||
                 std::any_of(value->shape.begin(), value->shape.end(), [](auto size) { return size < 0; });
    }
  }

  std::vector<Fault> find() {
    for (const Node& node : graph_.nodes) {
      if (!node.domain.empty()) {
        continue;
      }
      const bool product = node.op == "Gemm" || node.op == "MatMul";
      if (product && neighbours_.quantized(node)) {
        continue;  // the provider has none of those
      }
      if (is_half(node)) {
        half(node);
      } else if (node.op == "Gemm") {
        gemm(node);
      } else if (node.op == "MatMul") {
        matmul(node);
      } else if (node.op == "Resize") {
        resize(node);
      } else if (node.op == "Softmax") {
        softmax(node);
      } else if (node.op == "ConvTranspose") {
        conv_transpose(node);
      }
    }
    return std::move(faults_);
  }

 private:
  // Whether all dimensions of the value from `first` on are fixed. A file need not say: then they are unless
  // an input of the model has one that is not.
  bool fixed(const std::string& name, std::size_t first) const {
    const Value* value = graph_.value(name);
    if (value == nullptr || !value->has_rank) {
      return !dynamic_;
    }
    const auto begin =
        value->shape.begin() + static_cast<std::ptrdiff_t>(std::min(first, value->shape.size()));
    return std::all_of(begin, value->shape.end(), [](auto size) { return size >= 0; });
  }

  // The initializer that a constant is, or comes from.
  std::string initializer(const std::string& name) const {
    std::string found = name;
    for (auto maker = makers_.find(found); maker != makers_.end(); maker = makers_.find(found)) {
      const auto& inputs = maker->second->inputs;
      const auto next = std::find_if(inputs.begin(), inputs.end(), [&](const std::string& candidate) {
        return graph_.constants.count(candidate) != 0;
      });
      if (next == inputs.end()) {
        return "";
      }
      found = *next;
    }
    return graph_.constants.count(found) != 0 ? found : "";
  }

  void add(const Node& node, const std::string& what, const char* then, const std::string& constant) {
    faults_.push_back({node.index, node.name, node.op, what + ": " + then, initializer(constant)});
  }

  void gemm(const Node& node) {
    const std::string b = input(node, 1);
    const std::string c = input(node, 2);
    if (graph_.constants.count(b) == 0 || (!c.empty() && graph_.constants.count(c) == 0)) {
      return;  // the provider leaves it alone by itself
    }
    const Value* weights = graph_.value(b);
    const Value* bias = graph_.value(c);
    const std::size_t columns = integer(node, "transB", 0) != 0 ? 0 : 1;
    const bool vector = bias != nullptr && bias->has_rank && bias->shape.size() == 1 && weights != nullptr &&
                        weights->shape.size() == 2 && bias->shape[0] == weights->shape[columns];
    if (c.empty()) {
      add(node, "it has no C", kCrashes, b);
    } else if (integer(node, "transA", 0) != 0) {
      add(node, "A is transposed", kWrong, b);
    } else if (!fixed(input(node, 0), 0)) {
      add(node, "the number of A's rows is not fixed", kWrong, b);
    } else if (!vector) {
      add(node, "C is not one number for each column", kWrong, b);
    }
  }

  // Alone it is taken rightly, or not at all; but ONNX Runtime makes a Gemm of it and an Add before it asks.
  void matmul(const Node& node) {
    const std::string b = input(node, 1);
    if (graph_.constants.count(b) != 0 && !fixed(input(node, 0), 0)) {
      add(node, "as a Gemm, the number of A's rows is not fixed", kWrong, b);
    }
  }

  void resize(const Node& node) {
    const Attribute* mode = node.attribute("mode");
    if (mode == nullptr || mode->text != "linear" || fixed(input(node, 0), 1)) {
      return;
    }
    for (std::size_t i = node.inputs.size() - 1; i >= 1; --i) {
      if (graph_.constants.count(input(node, i)) != 0) {
        add(node, "its input's height and width are not fixed", kCrashes, input(node, i));
        return;
      }
    }
  }

  void softmax(const Node& node) {
    const std::int64_t axis = integer(node, "axis", 1);
    if (graph_.opset("") < 13 && !fixed(input(node, 0), axis < 0 ? 0 : static_cast<std::size_t>(axis))) {
      add(node, "dimensions from its axis on are not fixed", kCrashes, "");
    }
  }

  // Whether the node computes in float16. A file need not say: then it does where anything else does.
  bool is_half(const Node& node) const {
    const Value* value = graph_.value(input(node, 0));
    return value != nullptr && value->dtype != DType::kUnknown ? value->dtype == DType::kFloat16 : half_;
  }

  void half(const Node& node) {
    constexpr char kWhat[] = "it is of float16";
    const bool weighted =
        node.op == "Conv" || node.op == "ConvTranspose" || node.op == "Gemm" || node.op == "MatMul";
    if (weighted && graph_.constants.count(input(node, 1)) != 0) {
      add(node, kWhat, kHalf, input(node, 1));
    } else if (node.op == "AveragePool" || node.op == "MaxPool" || node.op == "Softmax" ||
               node.op == "Resize") {
      add(node, kWhat, kHalf, "");
    }
  }

  void conv_transpose(const Node& node) {
    const auto maker = makers_.find(input(node, 1));
    if (maker == makers_.end() || maker->second->op != "DequantizeLinear") {
      return;
    }
    const Value* scale = graph_.value(input(*maker->second, 1));
    if (scale != nullptr && !scale->shape.empty() && scale->shape[0] != 1) {
      add(node, "its weights have a scale for each channel", kRefuses, input(*maker->second, 0));
    }
  }

  const Graph& graph_;
  Makers makers_;
  Neighbours neighbours_;
  bool half_ = false;     // a value is known to be of float16
  bool dynamic_ = false;  // an input of the model has a dimension that is not fixed
  std::vector<Fault> faults_;
};

void append_varint(std::uint64_t value, std::string* bytes) {
  while (value >= 0x80) {
    bytes->push_back(static_cast<char>(0x80 | (value & 0x7F)));
    value >>= 7;
  }
  bytes->push_back(static_cast<char>(value));
}

void append_bytes(unsigned number, const std::string& content, std::string* message) {
  append_varint(number << 3 | 2, message);
  append_varint(content.size(), message);
  *message += content;
}

void append_number(unsigned number, std::int64_t value, std::string* message) {
  append_varint(number << 3, message);
  append_varint(static_cast<std::uint64_t>(value), message);
}

// ValueInfoProto of a tensor; field numbers are those of onnx.proto.
std::string value_info(const std::string& name, const Value& value) {
  std::string shape;
  for (const std::int64_t size : value.shape) {
    std::string dimension;
    append_number(1, size, &dimension);
    append_bytes(1, dimension, &shape);
  }
  std::string tensor;
  append_number(1, to_element_type(value.dtype), &tensor);  // ONNX Runtime numbers types as onnx.proto does
  append_bytes(2, shape, &tensor);
  std::string type;
  append_bytes(1, tensor, &type);
  std::string info;
  append_bytes(1, name, &info);
  append_bytes(2, type, &info);
  return info;
}

// Empty when it cannot be done.
std::string withholding_suffix(const Graph& graph, const std::vector<Fault>& faults) {
  constexpr std::int64_t kFirstWithReplaceable = 4;  // IR version
  std::set<std::string> names;
  for (const Fault& fault : faults) {
    const Value* value = graph.value(fault.withheld);
    if (graph.ir_version < kFirstWithReplaceable || fault.withheld.empty() || value == nullptr ||
        value->dtype == DType::kUnknown) {
      return "";
    }
    names.insert(fault.withheld);
  }
  std::string inputs;
  for (const std::string& name : names) {
    append_bytes(11, value_info(name, *graph.value(name)), &inputs);
  }
  std::string suffix;
  append_bytes(7, inputs, &suffix);
  return suffix;
}

}  // namespace

std::string Guard::why(const Node& node) const {
  for (const Fault& fault : faults) {
    if (fault.index == node.index) {
      return fault.why;
    }
  }
  if (whole) {
    return "the model is kept from the XNNPACK provider, for " + faults.front().op + " " +
           faults.front().node + " (" + faults.front().why + ")";
  }
  return "";
}

Guard guard_provider(const Graph& graph, bool appendable) {
  Guard guard;
  guard.faults = Finder(graph).find();
  if (!guard.faults.empty()) {
    guard.suffix = appendable ? withholding_suffix(graph, guard.faults) : "";
    guard.whole = guard.suffix.empty();
  }
  return guard;
}

}  // namespace slipway::onnx
