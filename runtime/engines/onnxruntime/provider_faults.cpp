#include "provider_faults.h"

#include <cstdint>
#include <set>

#include "provider_rules.h"
#include "scalar_types.h"

namespace slipway::onnx {
namespace {

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
