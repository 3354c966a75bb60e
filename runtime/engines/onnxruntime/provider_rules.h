// What the XNNPACK provider takes, by the rules of provider_rules.toml.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph.h"
#include "provider_faults.h"
#include "provider_table.h"
#include "quantized_groups.h"

namespace slipway::onnx {

constexpr char kXnnpack[] = "XnnpackExecutionProvider";
constexpr char kCpu[] = "CPUExecutionProvider";

// Why a node does not run on the XNNPACK provider; empty if it does.
struct Verdict {
  std::string why;
  std::string danger;    // what the provider does with it instead of leaving it alone
  std::string withheld;  // the initializer without which the provider leaves it alone; empty if there is none
  bool open = false;     // it would take it if the sizes of the model's inputs were fixed
};

class Judge {
 public:
  explicit Judge(const Graph& graph);

  Verdict operator()(const Node& node) const;
  // The same of a node that did not run there: what is not known of its input's sizes was not fixed, then.
  Verdict of_fallen(const Node& node) const;
  const Neighbours& neighbours() const { return neighbours_; }

 private:
  enum class Answer { kHolds, kBroken, kUnknown };

  static Answer answer(bool holds) { return holds ? Answer::kHolds : Answer::kBroken; }
  Answer check(const Rule& rule, const Node& node) const;
  Answer rank(const Rule& rule, const Node& node) const;
  Answer fixed(const Rule& rule, const Node& node) const;
  Answer axis(const Node& node) const;
  Answer scale(const Rule& rule, const Node& node) const;
  bool attribute(const Rule& rule, const Node& node) const;
  bool constant(const Rule& rule, const Node& node) const;
  bool single(const Rule& rule, const Node& node) const;
  bool other_steps(const Node& node) const;
  bool unshared(const Node& node) const;
  bool vector(const Rule& rule, const Node& node) const;
  Verdict judge(const Node& node, bool fallen) const;
  bool broken(const Rule& rule, const Node& node, bool fallen) const;
  // Whether the rest of the model is so that a node of which this is not known is taken to break the rule.
  bool model_breaks(const Rule& rule) const;
  std::string initializer(const std::string& name) const;

  const Graph& graph_;
  Neighbours neighbours_;
  bool dynamic_ = false;  // an input of the model has a dimension that is not fixed
};

// Whether the operator is of those that take most of a model's time wherever they occur.
bool is_compute_heavy(const std::string& full_op);

// Where the nodes will run, as far as the rules tell. ONNX Runtime decides on the optimized graph, where
// nodes are fused and folded, so this is an expectation; the result of a run says what became of it.
std::vector<NodeInfo> expected_placement(const Graph& graph, const Guard& guard = {});

}  // namespace slipway::onnx
