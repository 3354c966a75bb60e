#include "provider_faults.h"

#include <set>

#include "declarations.h"
#include "provider_rules.h"
#include "wire_format.h"

namespace slipway::onnx {
namespace {

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
  const Judge judge(graph);
  for (const Node& node : graph.nodes) {
    const Verdict verdict = judge(node);
    if (!verdict.danger.empty()) {
      const std::string why = verdict.why + ": the XNNPACK provider " + verdict.danger;
      guard.faults.push_back({node.index, node.name, node.op, why, verdict.withheld});
    }
  }
  if (!guard.faults.empty()) {
    guard.suffix = appendable ? withholding_suffix(graph, guard.faults) : "";
    guard.whole = guard.suffix.empty();
  }
  return guard;
}

}  // namespace slipway::onnx
