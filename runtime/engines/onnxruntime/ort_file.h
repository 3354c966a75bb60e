#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "graph.h"
#include "slipway/status.h"

namespace slipway::onnx {

// Whether the file is of ONNX Runtime's own format (.ort): it carries the identifier "ORTM".
bool is_ort(const std::uint8_t* data, std::size_t size);

// Reads a model in ONNX Runtime's own format. kFile when it is damaged; `path` is for the messages.
Result<Graph> read_ort(const std::uint8_t* data, std::size_t size, const std::string& path);

}  // namespace slipway::onnx
