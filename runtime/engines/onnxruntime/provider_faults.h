// What the XNNPACK provider of ONNX Runtime 1.21 takes although it cannot compute it, and how it is kept from
// it. docs/onnx.md shows the forms with what goes wrong.
#pragma once

#include <string>
#include <vector>

#include "graph.h"

namespace slipway::onnx {

constexpr char kXnnpack[] = "XnnpackExecutionProvider";
constexpr char kCpu[] = "CPUExecutionProvider";

struct Fault {
  std::string node;
  std::string op;
  std::string why;  // "it has no C: the XNNPACK provider crashes"
  // The constant that the provider must not see as one, so that it leaves the node alone; empty when there is
  // none.
  std::string withheld;
};

// How the provider is kept from what it gets wrong.
struct Guard {
  std::vector<Fault> faults;
  // To be appended to the model's bytes: inputs named like the withheld constants. A constant that a caller
  // may replace is none to the providers, and without one they do not take the node; the result is the same.
  // (Protocol Buffers merge a field that comes twice.)
  std::string suffix;
  // The provider must not have any of the model: a fault has no such constant.
  bool whole = false;
};

Guard guard_provider(const Graph& graph);

}  // namespace slipway::onnx
