// What ONNX Runtime's XNNPACK provider gets wrong, and where nodes ran.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph.h"
#include "slipway/engine.h"

namespace slipway::onnx {

// Why the provider is not given the model, a line for each kind of node that ONNX Runtime 1.21's takes
// although it cannot compute it: docs/onnx.md shows the forms with what goes wrong. Models that it refuses
// when they are loaded are not looked for: then ONNX Runtime says so.
std::vector<std::string> kept_away(const Graph& graph);

// A kernel's execution, of ONNX Runtime's profile: a JSON array of events, one a line, of which those of
// category "Node" are these. https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
struct NodeEvent {
  std::string name;  // of the node, without "_kernel_time"
  std::string op;
  std::string provider;
  std::uint64_t microseconds = 0;
};

// The kernels' executions in the profile's order. kExecution when the text is no such profile.
Result<std::vector<NodeEvent>> read_profile(const std::string& text);

// The last `timed` of all `executions`, summed up by node and provider, the costliest first.
std::vector<ProfileRow> by_operator(const std::vector<NodeEvent>& events, std::size_t timed,
                                    std::size_t executions);

// How a session was made.
struct Session {
  bool xnnpack = true;            // whether the XNNPACK provider was asked for
  std::vector<std::string> kept;  // why the model was kept from it, a line each
  unsigned ort_threads = 1;
  unsigned cores = 1;
  bool open = false;        // whether the model leaves sizes of its inputs open
  std::string shapes = {};  // of the inputs, as --input_shapes has them
  bool fixed = false;       // whether sizes that the model leaves open were fixed to these
};

// Where each node ran, and what to try when much of the time was spent outside the XNNPACK provider.
Placement placement_of(const std::vector<NodeEvent>& events, const Session& session);

}  // namespace slipway::onnx
