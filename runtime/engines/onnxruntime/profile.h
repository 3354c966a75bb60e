// ONNX Runtime's profile: a JSON array of events, of which those of category "Node" are the kernels'
// executions. https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
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

// Executions of one node under one provider summed up, the costliest first.
std::vector<ProfileRow> by_operator(const std::vector<NodeEvent>& events);

// Where ONNX Runtime writes a profile: a folder of our own, gone as soon as the file in it is open.
class ProfileFile {
 public:
  ProfileFile() = default;
  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;
  ~ProfileFile();

  // The prefix to give to ONNX Runtime; empty when there is no folder that can be written to.
  std::string prepare();
  // Takes hold of the file that ONNX Runtime opened under the prefix, and removes it from the folder.
  void take();
  bool taken() const { return descriptor_ >= 0; }
  // What is in it.
  Result<std::string> read() const;

 private:
  std::string folder_;
  int descriptor_ = -1;
};

}  // namespace slipway::onnx
