// ONNX Runtime's profile: a JSON array of events, one a line, of which those of category "Node" are the
// kernels' executions. https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// What is in an open file, from its beginning.
Result<std::string> read_file(int descriptor);

}  // namespace slipway::onnx
