#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "graph.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::onnx {

enum class Format { kOnnx, kOrt };

struct Model {
  Format format = Format::kOnnx;  // by the file's contents, whatever its name
  std::uint64_t size = 0;
  Graph graph;
};

// Reads a model file, .onnx or .ort, from end to end. kFile when it is neither, or damaged.
Result<Model> read_model(const std::string& path);

ProgramInfo program_info(const Model& model);

// Reads a serialized ModelProto from end to end. kFile when it is cut short, damaged, or no model; `path` is
// for the messages.
Result<Graph> read_onnx(const std::uint8_t* data, std::size_t size, const std::string& path);

// Whether the file is of ONNX Runtime's own format (.ort): it carries the identifier "ORTM".
bool is_ort(const std::uint8_t* data, std::size_t size);

// Reads a model in ONNX Runtime's own format. kFile when it is damaged; `path` is for the messages.
Result<Graph> read_ort(const std::uint8_t* data, std::size_t size, const std::string& path);

}  // namespace slipway::onnx
