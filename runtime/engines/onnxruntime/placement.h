#pragma once

#include <string>
#include <vector>

#include "graph.h"
#include "profile.h"
#include "provider_faults.h"
#include "slipway/engine.h"

namespace slipway::onnx {

struct Pools {
  bool xnnpack = true;  // whether the XNNPACK provider was asked for
  unsigned ort_threads = 1;
  unsigned cores = 1;
  Guard guard;
  std::string shapes = {};              // of the inputs, as --input_shapes has them
  std::vector<std::string> fixed = {};  // the inputs whose sizes were fixed for the session
};

// Where each node ran, from the profile of an execution; for what the XNNPACK provider left to another one
// the reason, from the node as the model has it; and what to try when that was costly.
Placement placement_of(const Graph& graph, const std::vector<NodeEvent>& events, const Pools& pools);

}  // namespace slipway::onnx
