#include "provider_faults.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>

#include "declarations.h"

namespace slipway::onnx {
namespace {

constexpr char kRefuses[] = "refuses the whole model";
constexpr char kCrashes[] = "crashes";
constexpr char kWrong[] = "computes wrong numbers";

struct Danger {
  const char* why;
  const char* does;  // what the provider does instead of leaving the node alone
  int withhold = 0;  // the input that must not be constant then, -1 for the last; 0 for none
};

// The input of a node; -1 is the last one that it has after the first.
std::string input(const Node& node, int index) {
  if (index >= 0) {
    const auto at = static_cast<std::size_t>(index);
    return at < node.inputs.size() ? node.inputs[at] : std::string();
  }
  for (std::size_t i = node.inputs.size(); i > 1; --i) {
    if (!node.inputs[i - 1].empty()) {
      return node.inputs[i - 1];
    }
  }
  return "";
}

std::int64_t integer(const Node& node, const char* name, std::int64_t otherwise) {
  const Attribute* attribute = node.attribute(name);
  return attribute == nullptr ? otherwise : attribute->integer;
}

bool is_one(const Node& node, const char* name) {
  const Attribute* attribute = node.attribute(name);
  return attribute == nullptr || attribute->number == 1;
}

// The runner infers no types and shapes, it reads what the file declares. Where that says nothing, a node is
// taken to be as the rest of the model: of float16 if a value is, with open sizes if an input has some.
class Judge {
 public:
  explicit Judge(const Graph& graph);

  // What the provider would do wrong with a node. Nodes that it leaves alone by itself are no danger; of
  // those, the ones are told apart that models have.
  std::optional<Danger> operator()(const Node& node) const;
  // The initializer that an input is, or comes from; empty if there is none.
  std::string initializer(const Node& node, int index) const;

 private:
  std::optional<Danger> convolution(const Node& node, bool quantized) const;
  std::optional<Danger> pool(const Node& node) const;
  std::optional<Danger> softmax(const Node& node) const;
  std::optional<Danger> resize(const Node& node, bool quantized) const;
  std::optional<Danger> product(const Node& node) const;

  bool constant(const Node& node, int index) const;
  bool half(const Node& node) const;
  bool ranks(const Node& node, int index, std::initializer_list<std::size_t> allowed) const;
  bool open(const Node& node, std::int64_t from) const;
  bool several_scales(const Node& node) const;
  bool other_steps(const Node& node) const;
  bool activation(const Node& node) const;
  bool shared_with_activation(const Node& node) const;
  bool vector(const Node& node) const;

  const Graph& graph_;
  Neighbours neighbours_;
  bool dynamic_;
  bool half_ = false;  // a value of the model is of float16
};

Judge::Judge(const Graph& graph) : graph_(graph), neighbours_(graph), dynamic_(has_open_inputs(graph)) {
  half_ = std::any_of(graph.values.begin(), graph.values.end(),
                      [](const auto& value) { return value.second.dtype == DType::kFloat16; });
}

std::optional<Danger> Judge::operator()(const Node& node) const {
  const bool quantized = neighbours_.quantized(node);
  const Value* first = graph_.value(input(node, 0));
  const DType type = first == nullptr ? DType::kUnknown : first->dtype;
  if (!node.domain.empty() ||
      (!quantized && type != DType::kUnknown && type != DType::kFloat32 && type != DType::kFloat16)) {
    return {};
  }
  if (node.op == "Conv" || node.op == "ConvTranspose") {
    return convolution(node, quantized);
  }
  if (node.op == "Resize") {
    return resize(node, quantized);
  }
  if (node.op == "Softmax") {
    return softmax(node);
  }
  if (quantized) {  // of the others the provider has quantized poolings only
    return {};
  }
  if (node.op == "MaxPool" || node.op == "AveragePool") {
    return pool(node);
  }
  return node.op == "Gemm" || node.op == "MatMul" ? product(node) : std::nullopt;
}

constexpr char kHalf[] = "it is of float16";
constexpr char kHalfDoes[] =
    "computes convolutions with a bias wrong, and refuses the whole model on a CPU without half-precision "
    "arithmetic";
// ONNX Runtime takes nodes away that change nothing before it asks the providers: the activation may stand
// behind one.
constexpr Danger kShared{"an activation and something else read its output", kRefuses, 1};

std::optional<Danger> Judge::convolution(const Node& node, bool quantized) const {
  if (!constant(node, 1) || !constant(node, 2)) {
    return {};
  }
  if (quantized) {
    return node.op == "ConvTranspose" && several_scales(node)
               ? std::optional(Danger{"not quantized with one scale throughout", kRefuses, 1})
               : std::nullopt;
  }
  if (half(node)) {
    return Danger{kHalf, kHalfDoes, 1};
  }
  return node.op == "Conv" && ranks(node, 0, {3, 4}) && shared_with_activation(node) ? std::optional(kShared)
                                                                                     : std::nullopt;
}

std::optional<Danger> Judge::pool(const Node& node) const {
  if (!ranks(node, 0, {4}) || integer(node, "ceil_mode", 0) != 0 ||
      (node.outputs.size() > 1 && !node.outputs[1].empty())) {
    return {};
  }
  if (half(node)) {
    return Danger{kHalf, kHalfDoes};
  }
  return shared_with_activation(node) ? std::optional(kShared) : std::nullopt;
}

std::optional<Danger> Judge::softmax(const Node& node) const {
  constexpr std::int64_t kFirstOverOneAxis = 13;
  if (half(node)) {
    return Danger{kHalf, kHalfDoes};
  }
  // Before that operator set dimensions count from the node's axis on.
  return graph_.opset("") < kFirstOverOneAxis && open(node, integer(node, "axis", 1))
             ? std::optional(Danger{"dimensions from its axis on are not fixed", kCrashes})
             : std::nullopt;
}

std::optional<Danger> Judge::resize(const Node& node, bool quantized) const {
  constexpr std::int64_t kFirstWithSizes = 11;
  const Attribute* mode = node.attribute("mode");
  if (mode == nullptr || mode->text != "linear" || !ranks(node, 0, {4}) || !constant(node, -1)) {
    return {};
  }
  if (graph_.opset("") < kFirstWithSizes) {
    return Danger{"of an operator set before 11", kRefuses, -1};
  }
  if (open(node, 1)) {
    return Danger{"its input's height and width are not fixed", kCrashes, -1};
  }
  if (quantized) {
    return other_steps(node)
               ? std::nullopt
               : std::optional(Danger{"its input and output are quantized in the same steps", kRefuses, -1});
  }
  return half(node) ? std::optional(Danger{kHalf, kHalfDoes}) : std::nullopt;
}

std::optional<Danger> Judge::product(const Node& node) const {
  const bool gemm = node.op == "Gemm";
  if (!constant(node, 1) || !ranks(node, 0, {1, 2}) || !ranks(node, 1, {1, 2}) ||
      (gemm && (!constant(node, 2) || !is_one(node, "alpha") || !is_one(node, "beta")))) {
    return {};
  }
  // It works with small operands, by luck: the provider writes beyond the output.
  if (!gemm && !ranks(node, 0, {2})) {
    return Danger{"A is a vector", kCrashes, 1};
  }
  if (half(node)) {
    return Danger{kHalf, kHalfDoes, 1};
  }
  if (gemm && input(node, 2).empty()) {
    return Danger{"it has no C", kCrashes, 1};
  }
  if (gemm && integer(node, "transA", 0) != 0) {
    return Danger{"A is transposed", kWrong, 1};
  }
  if (open(node, 0)) {
    // Alone a MatMul is left to the CPU provider; but ONNX Runtime makes a Gemm of it and an Add first.
    return Danger{"the number of A's rows is not fixed",
                  gemm ? kWrong : "computes wrong numbers if an Add follows, with which it becomes a Gemm",
                  1};
  }
  return gemm && !vector(node) ? std::optional(Danger{"C is not one number for each column", kWrong, 1})
                               : std::nullopt;
}

// Whether the input is absent or constant. Between DequantizeLinear and QuantizeLinear the integers count:
// ONNX Runtime leaves a DequantizeLinear of a constant as it is, and elsewhere what it gives is not constant
// to the provider.
bool Judge::constant(const Node& node, int index) const {
  std::string name = input(node, index);
  const Node* producer = neighbours_.producer(name);
  if (producer != nullptr && producer->op == "DequantizeLinear" && neighbours_.quantized(node)) {
    name = input(*producer, 0);
  }
  return name.empty() || graph_.constants.count(name) != 0;
}

bool Judge::half(const Node& node) const {
  const Value* value = graph_.value(input(node, 0));
  return value == nullptr || value->dtype == DType::kUnknown ? half_ : value->dtype == DType::kFloat16;
}

// Whether the input has one of these numbers of dimensions; true where it is not known.
bool Judge::ranks(const Node& node, int index, std::initializer_list<std::size_t> allowed) const {
  const Value* value = graph_.value(input(node, index));
  return value == nullptr || !value->has_rank ||
         std::find(allowed.begin(), allowed.end(), value->shape.size()) != allowed.end();
}

// Whether a dimension of the first input, from that one on, is not fixed.
bool Judge::open(const Node& node, std::int64_t from) const {
  const Value* value = graph_.value(input(node, 0));
  if (value == nullptr || !value->has_rank) {
    return dynamic_;
  }
  const auto size = static_cast<std::int64_t>(value->shape.size());
  const std::int64_t first = std::clamp<std::int64_t>(from < 0 ? from + size : from, 0, size);
  const bool fixed = std::all_of(value->shape.begin() + static_cast<std::ptrdiff_t>(first),
                                 value->shape.end(), [](auto dimension) { return dimension >= 0; });
  return !fixed && (!value->outdated || dynamic_);
}

// Whether input, weights and output are quantized as int8, with a scale for each channel somewhere.
bool Judge::several_scales(const Node& node) const {
  bool several = false;
  for (const Node* edge : {neighbours_.only_user(node), neighbours_.producer(input(node, 0)),
                           neighbours_.producer(input(node, 1))}) {
    const Step step = is_edge(edge) ? step_of(graph_, *edge) : Step{DType::kInt8, false};
    if (step.dtype != DType::kInt8) {
      return false;
    }
    several = several || step.several;
  }
  return several;
}

bool Judge::other_steps(const Node& node) const {
  const Value* steps[] = {nullptr, nullptr};
  const Node* edges[] = {neighbours_.producer(input(node, 0)), neighbours_.only_user(node)};
  for (std::size_t i = 0; i < 2; ++i) {
    steps[i] = is_edge(edges[i]) ? graph_.value(input(*edges[i], 1)) : nullptr;
    if (steps[i] == nullptr || !steps[i]->has_number) {
      return false;
    }
  }
  return steps[0]->number != steps[1]->number;
}

// Whether it is an activation that the provider can compute in the node before it.
bool Judge::activation(const Node& node) const {
  // Of Clip's limits the lower one must be there, and each that is named must be constant.
  return node.domain.empty() &&
         (node.op == "Relu" ||
          (node.op == "Clip" && node.inputs.size() > 1 &&
           std::all_of(node.inputs.begin() + 1, node.inputs.end(),
                       [&](const std::string& name) { return graph_.constants.count(name) != 0; })));
}

bool Judge::shared_with_activation(const Node& node) const {
  std::ptrdiff_t readers = 0;
  bool fuses = false;
  std::set<std::string> seen;  // a damaged file may have circles
  std::vector<std::string> names(node.outputs.begin(), node.outputs.begin() + (node.outputs.empty() ? 0 : 1));
  while (!names.empty()) {
    const std::string name = names.back();
    names.pop_back();
    if (!seen.insert(name).second) {
      continue;
    }
    readers += std::count(graph_.outputs.begin(), graph_.outputs.end(), name);
    for (const Node& inner : graph_.inner_nodes) {
      readers += std::count(inner.inputs.begin(), inner.inputs.end(), name);
    }
    for (const Node* user : neighbours_.users(name)) {
      if (user->domain.empty() && (user->op == "Identity" || user->op == "Dropout") &&
          !user->outputs.empty()) {
        names.push_back(user->outputs.front());
      } else {
        ++readers;
        fuses = fuses || activation(*user);
      }
    }
  }
  return readers > 1 && fuses;
}

// Whether C is one number for each column.
bool Judge::vector(const Node& node) const {
  const Value* value = graph_.value(input(node, 2));
  const Value* weights = graph_.value(input(node, 1));
  const std::size_t columns = integer(node, "transB", 0) != 0 ? 0 : 1;
  return value != nullptr && value->has_rank && value->shape.size() == 1 && weights != nullptr &&
         weights->shape.size() == 2 && value->shape[0] == weights->shape[columns];
}

// A damaged file may have circles.
std::string Judge::initializer(const Node& node, int index) const {
  std::string found = input(node, index);
  const Node* producer = neighbours_.producer(found);
  for (std::size_t steps = graph_.nodes.size(); producer != nullptr; --steps) {
    const auto next =
        std::find_if(producer->inputs.begin(), producer->inputs.end(),
                     [&](const std::string& candidate) { return graph_.constants.count(candidate) != 0; });
    if (next == producer->inputs.end() || steps == 0) {
      return "";
    }
    found = *next;
    producer = neighbours_.producer(found);
  }
  return graph_.constants.count(found) != 0 ? found : "";
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
    wire::append_bytes(11, value_info(name, *graph.value(name)), &inputs);
  }
  std::string suffix;
  wire::append_bytes(7, inputs, &suffix);
  return suffix;
}

}  // namespace

Guard guard_provider(const Graph& graph) {
  Guard guard;
  const Judge judge(graph);
  for (const Node& node : graph.nodes) {
    if (const std::optional<Danger> danger = judge(node)) {
      guard.faults.push_back({node.name, node.op,
                              std::string(danger->why) + ": the XNNPACK provider " + danger->does,
                              danger->withhold == 0 ? "" : judge.initializer(node, danger->withhold)});
    }
  }
  if (!guard.faults.empty()) {
    guard.suffix = withholding_suffix(graph, guard.faults);
    guard.whole = guard.suffix.empty();
  }
  return guard;
}

}  // namespace slipway::onnx
