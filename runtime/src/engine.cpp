#include "slipway/engine.h"

namespace slipway {

Status Engine::configure(const EngineOptions& options) {
  if (options.provider.empty() && options.ort_threads == 0 && !options.ort_spinning &&
      !options.trust_provider) {
    return {};
  }
  return {Code::kUsage,
          "The engine " + info().name + " has no providers and no thread pool of ONNX Runtime's.",
          "leave --provider, --trust_provider, --ort_threads and --ort_spinning to bundles of the engine "
          "onnxruntime"};
}

Status Engine::choose(const std::string& /*method*/) {
  return {Code::kUsage, "The engine " + info().name + " runs one method in a process.",
          "leave --run_first to bundles of the engine lean"};
}

Result<std::vector<ProfileRow>> Engine::profile_rows() {
  return Status(Code::kUsage, "The engine " + info().name + " makes no table of its profile.",
                "give --profile_path FILE, and read the file with the engine's own tools");
}

}  // namespace slipway
