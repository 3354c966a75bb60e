// What the XNNPACK provider takes, by the rules of provider_rules.toml. They are built into the program:
// provider_rules.inc is made of them by the runtime's conanfile.py, a row each.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph.h"
#include "provider_faults.h"
#include "slipway/tensor.h"

namespace slipway::onnx {

// What a node must pass.
enum class Check : std::uint8_t {
  kAbsent,     // it does not have the output
  kAttribute,  // its attribute is one of those allowed
  kAxis,       // from operator set 13: it is over the last axis
  kConstant,   // the input is constant, or absent
  kFixed,      // the first input's dimensions are fixed
  kNever,
  kOnes,       // every number of the attribute is 1
  kOpset,      // the model's operator set is as new
  kOtherType,  // the first input is of another type
  kPresent,    // it has the input
  kRank,
  kScale,     // its output is quantized in this step from 0
  kSingle,    // inputs and output are quantized in one type, with a scale for each channel at most for some
  kSteps,     // its input and output are quantized in different steps
  kType,      // the first input is of one of these types
  kUnshared,  // nothing else reads its output beside an activation that can be fused
  kVector,    // the input has one dimension, of as many as the weights have columns
};

// What is done where a type or a shape is not known.
enum class Unknown : std::uint8_t { kFail, kPass, kModel };

struct Rule {
  std::vector<std::string> operators;
  Check check;
  Unknown unknown;
  std::vector<int> indices;  // of the inputs, of kAbsent's output; -1 is the last input
  std::vector<DType> types;
  std::vector<DType> channels;  // the types that may have a scale for each channel
  const char* attribute;
  bool absent;  // whether a node without the attribute passes
  std::vector<std::string> texts;
  std::vector<std::int64_t> integers;  // allowed, or ranks
  std::vector<double> numbers;         // allowed, or the scale
  std::int64_t from;                   // first dimension, from the back if it is negative; or operator set
  std::int64_t from_axis_before;       // operator set; before it dimensions count from the node's axis on
  const char* why;
  const char* danger;  // empty if the provider leaves the node alone
  int withhold;        // the input that must not be constant then; 0 for none
};

const std::vector<Rule>& rules();

const std::string& outside();
const std::vector<std::string>& fused();
const std::vector<std::string>& fused_into();
const std::vector<std::string>& passing();
const std::vector<std::string>& never_folded();
const std::vector<std::string>& heavy();

bool contains(const std::vector<std::string>& names, const std::string& name);

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

// Where the nodes will run, as far as the rules tell. ONNX Runtime decides on the optimized graph, where
// nodes are fused and folded, so this is an expectation; the result of a run says what became of it.
std::vector<NodeInfo> expected_placement(const Graph& graph, const Guard& guard = {});

}  // namespace slipway::onnx
