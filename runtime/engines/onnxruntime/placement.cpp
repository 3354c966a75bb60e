#include "placement.h"

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "provider_rules.h"

namespace slipway::onnx {
namespace {

// The model's nodes by the names that ONNX Runtime gives them.
class Names {
 public:
  explicit Names(const Graph& graph) {
    for (const Node& node : graph.nodes) {
      nodes_[node.name.empty() ? node.op + "_" + std::to_string(node.index) : node.name] = &node;
      for (const std::string& output : node.outputs) {
        producers_[output] = &node;
      }
    }
  }

  // The node that an event is of; nullptr if the model has none.
  const Node* find(const NodeEvent& event) const {
    const auto found = nodes_.find(original(event.name));
    return found == nodes_.end() ? blocked(event) : found->second;
  }

 private:
  // The name that a node has in the model: ONNX Runtime appends "_token_5" to a node that it moved to another
  // layout.
  static std::string original(const std::string& name) {
    const std::size_t at = name.rfind("_token_");
    const bool marked =
        at != std::string::npos && name.find_first_not_of("0123456789", at + 7) == std::string::npos;
    return marked ? name.substr(0, at) : name;
  }

  // A node that the CPU provider moved to its blocked layout is named after its output, or after that of what
  // was fused with it.
  const Node* blocked(const NodeEvent& event) const {
    constexpr char kMark[] = "_nchwc";
    constexpr std::size_t kLength = sizeof(kMark) - 1;
    const std::string& name = event.name;
    if (name.size() <= kLength || name.compare(name.size() - kLength, kLength, kMark) != 0) {
      return nullptr;
    }
    auto found = producers_.find(name.substr(0, name.size() - kLength));
    for (int fused = 0; fused < 4 && found != producers_.end(); ++fused) {
      if (found->second->op == event.op) {
        return found->second;
      }
      found = producers_.find(found->second->inputs.empty() ? "" : found->second->inputs.front());
    }
    return nullptr;
  }

  std::unordered_map<std::string, const Node*> nodes_;
  std::unordered_map<std::string, const Node*> producers_;
};

std::string reason(const Verdict& verdict, const Node& node, const std::string& op, const Guard& guard) {
  for (const std::string& why : {verdict.danger.empty() ? verdict.why : std::string(), guard.why(node)}) {
    if (!why.empty()) {
      return why;
    }
  }
  return node.full_op() == op
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
  const Names names(graph);
  const Judge judge(graph);
  Placement placement;
  if (pools.xnnpack) {
    placement.hints = kept_away(pools.guard);
  }
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<std::string> costly;
  std::size_t open = 0;
  for (const NodeEvent& event : events) {
    if (!seen.insert({event.name, event.op}).second) {
      continue;  // of a loop's body
    }
    const Node* node = names.find(event);
    std::string why;
    if (pools.xnnpack && event.provider != kXnnpack) {
      const Verdict verdict = node == nullptr ? Verdict() : judge.of_fallen(*node);
      why = node == nullptr ? "added by ONNX Runtime when it optimized the graph"
                            : reason(verdict, *node, event.op, pools.guard);
      open += verdict.open ? 1 : 0;
    }
    if (event.provider == kCpu &&
        (contains(heavy(), event.op) || (node && contains(heavy(), node->full_op())))) {
      costly.push_back(event.op + " " + event.name);
    }
    placement.nodes.push_back({event.name, event.op, event.provider, std::move(why)});
  }
  if (open > 0) {
    placement.hints.push_back(std::to_string(open) + (open == 1 ? " node" : " nodes") +
                              " stayed away from XNNPACK because the model leaves sizes of its inputs open: "
                              "--input_shapes " +
                              pools.shapes + " fixes them for the session");
  }
  if (!pools.fixed.empty()) {
    placement.hints.push_back("the model leaves sizes of " + list(pools.fixed) +
                              " open: they were fixed for this session by --input_shapes " + pools.shapes);
  }
  if (pools.xnnpack && !costly.empty() && pools.ort_threads < pools.cores) {
    placement.hints.push_back(
        std::to_string(costly.size()) + " compute-heavy " + (costly.size() == 1 ? "node" : "nodes") + " (" +
        list(costly) + ") ran on " + kCpu + ", whose pool has " + std::to_string(pools.ort_threads) +
        (pools.ort_threads == 1 ? " thread" : " threads") +
        ": try --provider cpu, or pte_runner --ort_threads " + std::to_string(pools.cores));
  }
  return placement;
}

}  // namespace slipway::onnx
