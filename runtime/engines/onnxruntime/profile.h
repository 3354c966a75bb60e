// ONNX Runtime's profile: a JSON array of events, one a line, of which those of category "Node" are the
// kernels' executions. https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "provider_faults.h"
#include "slipway/engine.h"

namespace slipway::onnx {

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

struct Pools {
  bool xnnpack = true;  // whether the XNNPACK provider was asked for
  unsigned ort_threads = 1;
  unsigned cores = 1;
  Guard guard;
  bool open = false;                    // whether the model leaves sizes of its inputs open
  std::string shapes = {};              // of the inputs, as --input_shapes has them
  std::vector<std::string> fixed = {};  // the inputs whose sizes were fixed for the session
};

// Where each node ran, from the profile of an execution, and what to try when much of the time was spent
// outside the XNNPACK provider.
Placement placement_of(const std::vector<NodeEvent>& events, const Pools& pools);

// What is in an open file, from its beginning.
Result<std::string> read_file(int descriptor);

}  // namespace slipway::onnx
