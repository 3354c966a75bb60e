#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "graph.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::onnx {

// Whether the file is of ONNX Runtime's own format (.ort), whatever its name: it carries the identifier
// "ORTM".
bool is_ort(const std::string& path);

// Reads an .onnx file from end to end. kFile when it is none, or damaged.
Result<Graph> read_model(const std::string& path);

// `size`: of the file, in bytes.
ProgramInfo program_info(const Graph& graph, std::uint64_t size);

// Reads a serialized ModelProto from end to end. kFile when it is cut short, damaged, or no model; `path` is
// for the messages.
Result<Graph> read_onnx(const std::uint8_t* data, std::size_t size, const std::string& path);

}  // namespace slipway::onnx
