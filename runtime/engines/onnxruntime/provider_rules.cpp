#include "provider_rules.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_set>
#include <utility>

namespace slipway::onnx {
namespace {

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

bool is_open(const Value* value) {
  return value == nullptr || !value->has_rank ||
         std::any_of(value->shape.begin(), value->shape.end(), [](auto size) { return size < 0; });
}

template <typename T>
bool among(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Whether it is an activation that the provider can compute in the node before it.
bool is_activation(const Graph& graph, const Node& node) {
  if (!node.domain.empty() || !contains(fused(), node.op)) {
    return false;
  }
  // Of Clip's limits the lower one must be there, and each that is named must be constant.
  return node.op != "Clip" || (node.inputs.size() > 1 &&
                               std::all_of(node.inputs.begin() + 1, node.inputs.end(), [&](const auto& name) {
                                 return graph.constants.count(name) != 0;
                               }));
}

// As the rules name it.
std::string kind_of(const Node& node, const Neighbours& neighbours) {
  return (neighbours.quantized(node) ? "Q:" : "") + node.full_op();
}

}  // namespace

Judge::Judge(const Graph& graph) : graph_(graph), neighbours_(graph) {
  dynamic_ = std::any_of(graph.inputs.begin(), graph.inputs.end(),
                         [&](const std::string& name) { return is_open(graph.value(name)); });
}

Verdict Judge::operator()(const Node& node) const {
  return judge(node, false);
}

Verdict Judge::of_fallen(const Node& node) const {
  const Verdict verdict = judge(node, false);
  return verdict.why.empty() && dynamic_ ? judge(node, true) : verdict;
}

Verdict Judge::judge(const Node& node, bool fallen) const {
  const std::string kind = kind_of(node, neighbours_);
  bool known = false;
  for (const Rule& rule : rules()) {
    if (!contains(rule.operators, kind)) {
      continue;
    }
    known = true;
    if (broken(rule, node, fallen)) {
      return {rule.why, rule.danger, rule.withhold == 0 ? "" : initializer(input(node, rule.withhold)),
              rule.check == Check::kFixed && dynamic_};
    }
  }
  return known ? Verdict() : Verdict{outside(), "", "", false};
}

bool Judge::broken(const Rule& rule, const Node& node, bool fallen) const {
  const Answer found = check(rule, node);
  if (found != Answer::kUnknown) {
    return found == Answer::kBroken;
  }
  if (fallen && rule.check == Check::kFixed) {
    return true;
  }
  return rule.unknown == Unknown::kModel ? model_breaks(rule) : rule.unknown == Unknown::kFail;
}

bool Judge::model_breaks(const Rule& rule) const {
  if (rule.check == Check::kFixed) {
    return dynamic_;
  }
  return std::any_of(graph_.values.begin(), graph_.values.end(),
                     [&](const auto& value) { return among(rule.types, value.second.dtype); });
}

Judge::Answer Judge::check(const Rule& rule, const Node& node) const {
  switch (rule.check) {
    case Check::kNever:
      return Answer::kBroken;
    case Check::kType:
    case Check::kOtherType: {
      const Value* value = graph_.value(input(node, 0));
      if (value == nullptr || value->dtype == DType::kUnknown) {
        return Answer::kUnknown;
      }
      return answer(among(rule.types, value->dtype) == (rule.check == Check::kType));
    }
    case Check::kPresent:
      return answer(!input(node, rule.indices.front()).empty());
    case Check::kAbsent: {
      const auto at = static_cast<std::size_t>(rule.indices.front());
      return answer(node.outputs.size() <= at || node.outputs[at].empty());
    }
    case Check::kOpset:
      return answer(graph_.opset("") >= rule.from);
    case Check::kAttribute:
      return answer(attribute(rule, node));
    case Check::kOnes: {
      const Attribute* attribute = node.attribute(rule.attribute);
      return answer(attribute == nullptr ||
                    std::all_of(attribute->integers.begin(), attribute->integers.end(),
                                [](auto one) { return one == 1; }));
    }
    case Check::kRank:
      return rank(rule, node);
    case Check::kFixed:
      return fixed(rule, node);
    case Check::kAxis:
      return axis(node);
    case Check::kConstant:
      return answer(constant(rule, node));
    case Check::kSingle:
      return answer(single(rule, node));
    case Check::kScale:
      return scale(rule, node);
    case Check::kSteps:
      return answer(other_steps(node));
    case Check::kUnshared:
      return answer(unshared(node));
    case Check::kVector:
      return answer(vector(rule, node));
  }
  return Answer::kBroken;
}

bool Judge::attribute(const Rule& rule, const Node& node) const {
  const Attribute* attribute = node.attribute(rule.attribute);
  if (attribute == nullptr) {
    return rule.absent;
  }
  return among(rule.texts, attribute->text) || among(rule.integers, attribute->integer) ||
         among(rule.numbers, static_cast<double>(attribute->number));
}

// Between DequantizeLinear and QuantizeLinear the integers count: ONNX Runtime leaves a DequantizeLinear of a
// constant as it is, and elsewhere what it gives is not constant to the provider.
bool Judge::constant(const Rule& rule, const Node& node) const {
  std::string name = input(node, rule.indices.front());
  const Node* producer = neighbours_.producer(name);
  if (producer != nullptr && producer->op == "DequantizeLinear" && neighbours_.quantized(node)) {
    name = input(*producer, 0);
  }
  return name.empty() || graph_.constants.count(name) != 0;
}

Judge::Answer Judge::rank(const Rule& rule, const Node& node) const {
  const Value* value = graph_.value(input(node, rule.indices.front()));
  if (value == nullptr || !value->has_rank) {
    // A convolution's weights have as many dimensions as its input, and a window two less.
    value = node.op.find("Conv") == std::string::npos ? nullptr : graph_.value(input(node, 1));
  }
  if (value != nullptr && value->has_rank) {
    return answer(among(rule.integers, static_cast<std::int64_t>(value->shape.size())));
  }
  const Attribute* window = node.attribute("kernel_shape");
  return window == nullptr
             ? Answer::kUnknown
             : answer(among(rule.integers, static_cast<std::int64_t>(window->integers.size()) + 2));
}

Judge::Answer Judge::fixed(const Rule& rule, const Node& node) const {
  if (rule.from_axis_before > 0 && graph_.opset("") >= rule.from_axis_before) {
    return Answer::kHolds;
  }
  const Value* value = graph_.value(input(node, 0));
  if (value == nullptr || !value->has_rank) {
    return Answer::kUnknown;
  }
  const auto size = static_cast<std::int64_t>(value->shape.size());
  const std::int64_t from = rule.from_axis_before > 0 ? integer(node, "axis", 1) : rule.from;
  const std::int64_t first = std::clamp<std::int64_t>(from < 0 ? from + size : from, 0, size);
  const bool all = std::all_of(value->shape.begin() + static_cast<std::ptrdiff_t>(first), value->shape.end(),
                               [](auto dimension) { return dimension >= 0; });
  return !all && value->outdated ? Answer::kUnknown : answer(all);
}

Judge::Answer Judge::axis(const Node& node) const {
  constexpr std::int64_t kFirstWithOneAxis = 13;
  const std::int64_t given = integer(node, "axis", -1);
  if (graph_.opset("") < kFirstWithOneAxis || given == -1) {
    return Answer::kHolds;
  }
  const Value* value = graph_.value(input(node, 0));
  return value == nullptr || !value->has_rank
             ? Answer::kUnknown
             : answer(given == static_cast<std::int64_t>(value->shape.size()) - 1);
}

bool Judge::single(const Rule& rule, const Node& node) const {
  std::vector<const Node*> edges = {neighbours_.only_user(node)};
  for (const int index : rule.indices) {
    edges.push_back(neighbours_.producer(input(node, index)));
  }
  std::set<DType> types;
  bool channels = false;
  for (const Node* edge : edges) {
    if (is_edge(edge)) {  // weights that are not quantized break another rule
      const Step step = step_of(graph_, *edge);
      types.insert(step.dtype);
      channels = channels || step.several;
    }
  }
  return types.size() == 1 && among(channels ? rule.channels : rule.types, *types.begin());
}

Judge::Answer Judge::scale(const Rule& rule, const Node& node) const {
  constexpr double kNear = 1e-4;
  const Node* edge = neighbours_.only_user(node);
  if (!is_edge(edge)) {
    return Answer::kUnknown;
  }
  const std::string zero_name = input(*edge, 2);
  const Value* step = graph_.value(input(*edge, 1));
  const Value* zero = graph_.value(zero_name);
  if (step == nullptr || !step->has_number ||
      (!zero_name.empty() && (zero == nullptr || !zero->has_number))) {
    return Answer::kUnknown;
  }
  return answer(std::abs(step->number - rule.numbers.front()) <= kNear &&
                (zero_name.empty() || zero->number == 0));
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

bool Judge::unshared(const Node& node) const {
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
      if (user->domain.empty() && contains(passing(), user->op) && !user->outputs.empty()) {
        names.push_back(user->outputs.front());
      } else {
        ++readers;
        fuses = fuses || is_activation(graph_, *user);
      }
    }
  }
  return readers < 2 || !fuses;
}

bool Judge::vector(const Rule& rule, const Node& node) const {
  const Value* value = graph_.value(input(node, rule.indices.front()));
  const Value* weights = graph_.value(input(node, 1));
  const std::size_t columns = integer(node, "transB", 0) != 0 ? 0 : 1;
  return value != nullptr && value->has_rank && value->shape.size() == 1 && weights != nullptr &&
         weights->shape.size() == 2 && value->shape[0] == weights->shape[columns];
}

// The initializer that a constant is, or comes from; empty if there is none. A damaged file may have circles.
std::string Judge::initializer(const std::string& name) const {
  std::string found = name;
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

namespace {

// Whether the provider computes the activation in the node before it, which it takes.
bool is_fused(const Graph& graph, const Neighbours& neighbours, const Node& node,
              const std::unordered_set<const Node*>& taken) {
  const Node* before = neighbours.producer(input(node, 0));
  return is_activation(graph, node) && before != nullptr && taken.count(before) != 0 &&
         contains(fused_into(), before->op) && neighbours.only_user(*before) == &node;
}

bool is_folded(const Graph& graph, const Node& node) {
  return !node.outputs.empty() &&
         std::all_of(node.outputs.begin(), node.outputs.end(),
                     [&](const std::string& name) { return graph.constants.count(name) != 0; });
}

}  // namespace

std::vector<NodeInfo> expected_placement(const Graph& graph, const Guard& guard) {
  const Judge judge(graph);
  const Neighbours& neighbours = judge.neighbours();
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
    const Verdict verdict = judge(node);
    std::string why = verdict.danger.empty() ? verdict.why : "";
    if (why.empty()) {
      why = guard.why(node);
    }
    if (why.empty()) {
      taken.insert(&node);
    }
    const char* provider = why.empty() ? kXnnpack : kCpu;
    placed.push_back({node.name, neighbours.quantized(node) ? quantized_name(node) : node.full_op(), provider,
                      std::move(why)});
  }
  return placed;
}

#define RULE(...)
#define TEXT(name, text)                   \
  const std::string& name() {              \
    static const std::string value = text; \
    return value;                          \
  }
#define LIST(name, ...)                                       \
  const std::vector<std::string>& name() {                    \
    static const std::vector<std::string> value{__VA_ARGS__}; \
    return value;                                             \
  }
#include "provider_rules.inc"
#undef RULE
#undef TEXT
#undef LIST

#define RULE(...) {__VA_ARGS__},
#define TEXT(name, text)
#define LIST(name, ...)
const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
#include "provider_rules.inc"
  };
  return table;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace slipway::onnx
