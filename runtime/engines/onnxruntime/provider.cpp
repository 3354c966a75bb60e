#include "provider.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace slipway::onnx {
namespace {

// The input of a node; empty where it has none.
std::string input(const Node& node, std::size_t index) {
  return index < node.inputs.size() ? node.inputs[index] : std::string();
}

bool constant(const Graph& graph, const std::string& name) {
  return name.empty() || graph.constants.count(name) != 0;
}

// Whether the input has one of these numbers of dimensions; true where the file does not declare any.
bool ranks(const Graph& graph, const std::string& name, std::initializer_list<std::size_t> allowed) {
  const Value* value = graph.value(name);
  return value == nullptr || !value->has_rank ||
         std::find(allowed.begin(), allowed.end(), value->shape.size()) != allowed.end();
}

// Whether a dimension of the first input, from that one on, is not fixed. Where the file does not say, a node
// is taken to be as the rest of the model.
bool open(const Graph& graph, const Node& node, std::int64_t from) {
  const Value* value = graph.value(input(node, 0));
  if (graph.settled || value == nullptr || !value->has_rank) {
    return !graph.settled && has_open_inputs(graph);
  }
  const auto size = static_cast<std::int64_t>(value->shape.size());
  const std::int64_t first = std::clamp<std::int64_t>(from < 0 ? from + size : from, 0, size);
  return std::any_of(value->shape.begin() + static_cast<std::ptrdiff_t>(first), value->shape.end(),
                     [](auto dimension) { return dimension < 0; });
}

const char* softmax_fault(const Graph& graph, const Node& node) {
  constexpr std::int64_t kFirstOverOneAxis = 13;
  // Before that operator set dimensions count from the node's axis on.
  const Attribute* axis = node.attribute("axis");
  const bool bad =
      graph.opset("") < kFirstOverOneAxis && open(graph, node, axis == nullptr ? 1 : axis->integer);
  return bad ? "dimensions from its axis on are not fixed: the XNNPACK provider crashes" : nullptr;
}

const char* resize_fault(const Graph& graph, const Node& node) {
  const Attribute* mode = node.attribute("mode");
  const bool bad = mode != nullptr && mode->text == "linear" && ranks(graph, input(node, 0), {4}) &&
                   !node.inputs.empty() && constant(graph, node.inputs.back()) && open(graph, node, 1);
  return bad ? "its input's height and width are not fixed: the XNNPACK provider crashes" : nullptr;
}

// Whether C of a Gemm is one number for each column.
bool is_row(const Graph& graph, const Node& node) {
  const Value* value = graph.value(input(node, 2));
  const Value* weights = graph.value(input(node, 1));
  const Attribute* transposed = node.attribute("transB");
  const std::size_t columns = transposed != nullptr && transposed->integer != 0 ? 0 : 1;
  return value != nullptr && value->has_rank && value->shape.size() == 1 && weights != nullptr &&
         weights->shape.size() == 2 && value->shape[0] == weights->shape[columns];
}

const char* product_fault(const Graph& graph, const Node& node) {
  const bool gemm = node.op == "Gemm";
  const auto is_one = [&](const char* name) {
    const Attribute* factor = node.attribute(name);
    return factor == nullptr || factor->number == 1;
  };
  if (!constant(graph, input(node, 1)) || !ranks(graph, input(node, 0), {1, 2}) ||
      !ranks(graph, input(node, 1), {1, 2}) ||
      (gemm && (!constant(graph, input(node, 2)) || !is_one("alpha") || !is_one("beta")))) {
    return nullptr;  // nodes that the provider leaves alone
  }
  // It works with small operands, by luck: the provider writes beyond the output.
  if (!gemm && !ranks(graph, input(node, 0), {2})) {
    return "A is a vector: the XNNPACK provider crashes";
  }
  if (gemm && input(node, 2).empty()) {
    return "it has no C: the XNNPACK provider crashes";
  }
  const Attribute* transposed = node.attribute("transA");
  if (transposed != nullptr && transposed->integer != 0) {
    return "A is transposed: the XNNPACK provider computes wrong numbers";
  }
  if (open(graph, node, 0)) {
    // Alone a MatMul is left to the CPU provider; but ONNX Runtime makes a Gemm of it and an Add first.
    return gemm
               ? "the number of A's rows is not fixed: the XNNPACK provider computes wrong numbers"
               : "the number of A's rows is not fixed: the XNNPACK provider computes wrong numbers if an Add "
                 "follows, with which it becomes a Gemm";
  }
  return gemm && !is_row(graph, node)
             ? "C is not one number for each column: the XNNPACK provider computes wrong numbers"
             : nullptr;
}

const char* fault_of(const Graph& graph, const Node& node) {
  if (!node.domain.empty()) {
    return nullptr;
  }
  const Value* first = graph.value(input(node, 0));
  if (first != nullptr && first->dtype != DType::kUnknown && first->dtype != DType::kFloat32) {
    return nullptr;
  }
  return node.op == "Softmax"                       ? softmax_fault(graph, node)
         : node.op == "Resize"                      ? resize_fault(graph, node)
         : node.op == "Gemm" || node.op == "MatMul" ? product_fault(graph, node)
                                                    : nullptr;
}

constexpr char kSuffix[] = "_kernel_time";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// What stands behind `key`, up to the quote that ends it.
std::string text_behind(std::string_view line, std::string_view key) {
  std::string found;
  const std::size_t begin = line.find(key);
  std::size_t at = begin == std::string_view::npos ? line.size() : begin + key.size();
  for (; at < line.size() && line[at] != '"'; ++at) {
    at += line[at] == '\\' && at + 1 < line.size() ? 1 : 0;
    found += line[at];
  }
  return found;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 3; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > 3 ? text + ", ..." : text;
}

// Whether the XNNPACK provider has the operator for inputs of fixed sizes; ONNX Runtime puts something before
// or behind its name when it fuses or quantizes it.
bool wants_fixed_sizes(const std::string& op) {
  static const char* const kOperators[] = {"Conv", "MaxPool", "AveragePool", "Resize", "Softmax", "Gemm"};
  return std::any_of(std::begin(kOperators), std::end(kOperators), [&](const char* name) {
    return op.find(name) != std::string::npos && op.find("Global") == std::string::npos;
  });
}

}  // namespace

std::vector<std::string> kept_away(const Graph& graph) {
  std::map<std::string, std::vector<std::string>> faults;  // what has the fault, by what goes wrong
  for (const Node& node : graph.nodes) {
    if (const char* why = fault_of(graph, node)) {
      faults[why].push_back(node.op + " " + node.name);
    }
  }
  for (const auto& [name, value] : graph.values) {
    if (value.dtype == DType::kFloat16) {
      faults = {
          {"it is of float16: the XNNPACK provider computes convolutions with a bias wrong, and refuses the "
           "whole model on a CPU without half-precision arithmetic",
           {"value " + name}}};
      break;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [why, names] : faults) {
    lines.push_back("the model was kept from the XNNPACK provider: " + list(names) + ": " + why);
  }
  return lines;
}

Result<std::vector<NodeEvent>> read_profile(const std::string& text) {
  const std::vector<std::string_view> lines = pieces(text, "\r\n");
  if (lines.size() < 3 || lines.front() != "[" || lines.back() != "]") {
    return Status(Code::kExecution,
                  "ONNX Runtime's profile cannot be read: it is not a JSON array of events.",
                  "run without --profile");
  }
  std::vector<NodeEvent> events;
  for (const std::string_view line : lines) {
    const std::string name = text_behind(line, R"("name" :")");
    if (text_behind(line, R"({"cat" : ")") != "Node" || !ends_with(name, kSuffix)) {
      continue;
    }
    events.push_back({name.substr(0, name.size() - (sizeof(kSuffix) - 1)),
                      text_behind(line, R"("op_name" : ")"), text_behind(line, R"("provider" : ")"),
                      std::strtoull(text_behind(line, R"("dur" :)").c_str(), nullptr, 10)});
  }
  return events;
}

std::vector<ProfileRow> by_operator(const std::vector<NodeEvent>& events, std::size_t timed,
                                    std::size_t executions) {
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, std::size_t> left;
  for (const NodeEvent& event : events) {
    ++left[{event.name, event.op, event.provider}];
  }
  // The profile does not separate executions, but each runs a node equally often.
  for (auto& [key, count] : left) {
    count -= executions == 0 ? 0 : count / executions * std::min(timed, executions);
  }
  ProfileRows rows;
  for (const NodeEvent& event : events) {
    std::size_t& skipped = left[{event.name, event.op, event.provider}];
    if (skipped != 0) {
      --skipped;
    } else {
      rows.add(event.name, event.op, event.provider, static_cast<double>(event.microseconds) / 1000.0);
    }
  }
  return rows.sorted();
}

Placement placement_of(const std::vector<NodeEvent>& events, const Session& session) {
  Placement placement;
  std::set<std::pair<std::string, std::string>> seen;
  std::size_t open = 0;
  std::uint64_t fallen = 0;
  std::uint64_t all = 0;
  for (const NodeEvent& event : events) {
    const bool fell = session.xnnpack && event.provider != kXnnpack;
    all += event.microseconds;
    fallen += fell ? event.microseconds : 0;
    if (seen.insert({event.name, event.op}).second) {  // a loop's body comes again
      placement.nodes.push_back({event.name, event.op, event.provider});
      open += fell && session.open && wants_fixed_sizes(event.op) ? 1 : 0;
    }
  }
  placement.hints = session.kept;
  if (open > 0) {
    placement.hints.push_back(std::to_string(open) + (open == 1 ? " node" : " nodes") +
                              " of operators that XNNPACK has in fixed sizes ran on " + kCpu +
                              ", and the model leaves sizes of its inputs open: --input_shapes " +
                              session.shapes + " fixes them for the session");
  }
  if (session.fixed) {
    placement.hints.push_back(
        "the model leaves sizes of its inputs open: they were fixed for this session by --input_shapes " +
        session.shapes);
  }
  if (fallen * 2 > all && session.ort_threads < session.cores) {
    placement.hints.push_back(
        std::to_string(fallen * 100 / all) + "% of the time was spent on " + kCpu + ", whose pool has " +
        std::to_string(session.ort_threads) + (session.ort_threads == 1 ? " thread" : " threads") +
        ": try --provider cpu, or pte_runner --ort_threads " + std::to_string(session.cores));
  }
  return placement;
}

}  // namespace slipway::onnx
