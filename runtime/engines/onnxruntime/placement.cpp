#include "placement.h"

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "provider_rules.h"

namespace slipway::onnx {
namespace {

// Nodes by the name that ONNX Runtime gives them: their own, or operator and index where they have none.
std::unordered_map<std::string, const Node*> by_name(const Graph& graph) {
  std::unordered_map<std::string, const Node*> nodes;
  for (const Node& node : graph.nodes) {
    nodes[node.name.empty() ? node.op + "_" + std::to_string(node.index) : node.name] = &node;
  }
  return nodes;
}

// The name that a node has in the model: ONNX Runtime appends "_token_5" to a node that it moved to another
// layout.
std::string original(const std::string& name) {
  const std::size_t at = name.rfind("_token_");
  const bool marked =
      at != std::string::npos && name.find_first_not_of("0123456789", at + 7) == std::string::npos;
  return marked ? name.substr(0, at) : name;
}

std::string reason(const Judge& judge, const Node* node, const std::string& op, const Guard& guard) {
  if (node == nullptr) {
    return "added by ONNX Runtime when it optimized the graph";
  }
  const Verdict verdict = judge(*node);
  for (const std::string& why : {verdict.danger.empty() ? verdict.why : std::string(), guard.why(*node)}) {
    if (!why.empty()) {
      return why;
    }
  }
  return node->full_op() == op
             ? "no rule keeps it from the XNNPACK provider, but the provider's own checks did"
             : "ONNX Runtime made it " + op + " before the provider was asked";
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 3; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > 3 ? text + ", ..." : text;
}

// One line for each kind of thing that was kept from the provider.
std::vector<std::string> kept_away(const Guard& guard) {
  std::map<std::string, std::vector<std::string>> nodes;
  for (const Fault& fault : guard.faults) {
    nodes[fault.why].push_back(fault.op + " " + fault.node);
  }
  std::vector<std::string> lines;
  for (const auto& [why, names] : nodes) {
    lines.push_back(list(names) + (guard.whole ? ", and so the whole model, was" : " was") +
                    " kept from the XNNPACK provider: " + why);
  }
  return lines;
}

}  // namespace

Placement placement_of(const Graph& graph, const std::vector<NodeEvent>& events, const Pools& pools) {
  const auto nodes = by_name(graph);
  const Judge judge(graph);
  Placement placement;
  if (pools.xnnpack) {
    placement.hints = kept_away(pools.guard);
  }
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<std::string> heavy;
  for (const NodeEvent& event : events) {
    if (!seen.insert({event.name, event.op}).second) {
      continue;  // of a loop's body
    }
    const auto found = nodes.find(original(event.name));
    const Node* node = found == nodes.end() ? nullptr : found->second;
    std::string why;
    if (pools.xnnpack && event.provider != kXnnpack) {
      why = reason(judge, node, event.op, pools.guard);
    }
    if (event.provider == kCpu &&
        (is_compute_heavy(event.op) || (node && is_compute_heavy(node->full_op())))) {
      heavy.push_back(event.op + " " + event.name);
    }
    placement.nodes.push_back({event.name, event.op, event.provider, std::move(why)});
  }
  if (pools.xnnpack && !heavy.empty() && pools.ort_threads < pools.cores) {
    placement.hints.push_back(std::to_string(heavy.size()) + " compute-heavy " +
                              (heavy.size() == 1 ? "node" : "nodes") + " (" + list(heavy) + ") ran on " +
                              kCpu + ", whose pool has " + std::to_string(pools.ort_threads) +
                              (pools.ort_threads == 1 ? " thread" : " threads") + ": try --ort_threads " +
                              std::to_string(pools.cores) + ", with and without --ort_spinning");
  }
  return placement;
}

}  // namespace slipway::onnx
