#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "graph.h"
#include "slipway/status.h"

namespace slipway::onnx {

// Reads a serialized ModelProto from end to end. kFile when it is cut short, damaged, or no model; `path` is
// for the messages.
Result<Graph> read_onnx(const std::uint8_t* data, std::size_t size, const std::string& path);

}  // namespace slipway::onnx
