#include "model_file.h"

#include <cstring>
#include <utility>

#include "base/platform.h"
#include "onnx_file.h"
#include "ort_file.h"
#include "provider_rules.h"

namespace slipway::onnx {

Result<Model> read_model(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  SLIPWAY_RETURN_IF_ERROR(file);
  const std::uint8_t* data = file.value().data();
  Model model;
  model.size = file.value().size();
  model.format = is_ort(data, file.value().size()) ? Format::kOrt : Format::kOnnx;
  const auto read = model.format == Format::kOrt ? read_ort : read_onnx;
  Result<Graph> graph = read(data, file.value().size(), path);
  SLIPWAY_RETURN_IF_ERROR(graph);
  model.graph = std::move(graph.value());
  return std::move(model);
}

ProgramInfo program_info(const Model& model) {
  ProgramInfo info;
  info.size = model.size;
  info.version = static_cast<std::uint64_t>(model.graph.ir_version);
  for (const auto& [domain, version] : model.graph.opsets) {
    info.opsets.emplace_back(domain.empty() ? "ai.onnx" : domain, version);
  }
  info.data_files = model.graph.data_files;
  MethodInfo method = method_of(model.graph);
  method.nodes = expected_placement(model.graph, guard_provider(model.graph, model.format == Format::kOnnx));
  // What no other provider takes, the one for the CPU does.
  method.backends = {kCpu};
  for (const NodeInfo& node : method.nodes) {
    if (node.provider == kXnnpack) {
      method.backends.emplace_back(kXnnpack);
      break;
    }
  }
  info.methods.push_back(std::move(method));
  return info;
}

}  // namespace slipway::onnx
