// ONNX Runtime's profile: a JSON array of events, of which those of category "Node" are the kernels'
// executions. https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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

// A JSON value (RFC 8259). What is not there reads as nothing: value["a"]["b"].text is empty then.
struct JsonValue {
  std::string text;  // of a string; of a number, true, false or null as it is written
  std::vector<JsonValue> items;
  std::map<std::string, JsonValue> members;

  const JsonValue& operator[](const std::string& name) const;
};

// False when the text is no JSON document, or is nested deeper than 64 levels.
bool parse_json(std::string_view text, JsonValue* value);

}  // namespace slipway::onnx
