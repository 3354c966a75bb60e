#include "slipway/engine.h"

#include "slipway/status.h"

namespace slipway {

std::vector<SizeRange> size_ranges(const ValueSpec& spec) {
  if (!spec.ranges.empty()) {
    return spec.ranges;
  }
  std::vector<SizeRange> ranges;
  for (const std::int64_t size : spec.shape) {
    const bool fixed = spec.dynamism == Dynamism::kStatic;
    ranges.push_back({fixed ? size : 0, spec.dynamism == Dynamism::kUnbounded ? SizeRange::kAny : size});
  }
  return ranges;
}

Status Engine::configure(const EngineOptions& options) {
  if (options.max_jumps != 0) {
    return {Code::kUsage, "The engine " + info().name + " has no limit on jumps.",
            "leave --max_jumps to bundles of the engine lean"};
  }
  if (!options.weights_cache.empty()) {
    return {Code::kUsage, "The engine " + info().name + " keeps no packed weights.",
            "leave --weights_cache to bundles of the engine lean"};
  }
  if (!options.kleidiai.empty()) {
    return {Code::kUsage, "The engine " + info().name + " cannot turn KleidiAI on or off.",
            "leave --kleidiai to bundles of the engine lean"};
  }
  if (!options.unused_features.empty()) {
    return {Code::kUsage, "The engine " + info().name + " cannot leave features of the processor unused.",
            "leave --cpu_features to bundles of the engine lean"};
  }
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
          "leave --run_first to bundles of the engines executorch and lean"};
}

Result<std::vector<std::uint8_t>> Engine::values() {
  return Status(Code::kUsage, "The engine " + info().name + " keeps no intermediate values.",
                "leave --dump_intermediate to bundles of the engines executorch and lean");
}

Result<std::vector<ProfileRow>> Engine::profile_rows(unsigned /*timed*/) {
  return Status(Code::kUsage, "The engine " + info().name + " makes no table of its profile.",
                "give --profile_path FILE, and read the file with the engine's own tools");
}

const char* kind_of(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kUsage:
      return "usage";
    case Code::kFile:
      return "file";
    case Code::kMissingOperator:
      return "missing-operator";
    case Code::kMissingBackend:
      return "missing-backend";
    case Code::kInput:
      return "input";
    case Code::kExecution:
      return "execution";
    case Code::kOutput:
      return "output";
    case Code::kMemory:
      return "memory";
    case Code::kCrash:
      return "crash";
    case Code::kLimit:
      return "limit";
  }
  return "unknown";
}

Status out_of_memory() {
  return {Code::kMemory, "Out of memory.", "use a smaller program or input, or a device with more memory"};
}

}  // namespace slipway
