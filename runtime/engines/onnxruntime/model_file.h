#pragma once

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

}  // namespace slipway::onnx
