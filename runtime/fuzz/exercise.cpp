#include "exercise.h"

#include <algorithm>
#include <vector>

namespace slipway {
namespace {

// Programs whose inputs are larger are only loaded: what damaged numbers ask for is not worth the time.
constexpr std::size_t kMostInputBytes = std::size_t{1} << 20;

// Programs that plan more or have larger outputs are only loaded: the runner asks what the device has before
// it executes them, and this machine may have much.
constexpr std::uint64_t kMostMemory = std::uint64_t{512} << 20;

bool fits(const MethodInfo& method) {
  std::uint64_t all = method.planned_bytes;
  for (const ValueSpec& spec : method.outputs) {
    std::size_t count = 0;
    if (!count_elements(spec.shape, size_of(spec.dtype), &count)) {
      return false;
    }
    all += std::min<std::uint64_t>(std::uint64_t{count} * size_of(spec.dtype), UINT64_MAX - all);
  }
  return all <= kMostMemory;
}

// False for inputs that have no form or are too large.
bool make_inputs(const MethodInfo& method, std::vector<Tensor>* inputs) {
  std::size_t all = 0;
  for (const ValueSpec& spec : method.inputs) {
    if (spec.kind != "tensor") {
      inputs->push_back(spec.exported);
      continue;
    }
    std::size_t count = 0;
    const std::size_t size = size_of(spec.dtype);
    if (size == 0 || !count_elements(spec.shape, size, &count) || count > kMostInputBytes / size) {
      return false;
    }
    all += count * size;
    if (all > kMostInputBytes) {
      return false;
    }
    inputs->push_back(ones(spec.dtype, spec.shape, count));
  }
  return true;
}

void digest(const std::vector<Tensor>& outputs, Trace* trace) {
  for (const Tensor& output : outputs) {
    for (const std::uint8_t byte : output.bytes) {
      trace->digest = (trace->digest ^ byte) * 0x100000001b3;
    }
  }
  ++trace->executed;
}

Status run_method(Engine& engine, const std::string& path, const MethodInfo& method, Trace* trace) {
  LoadOptions options;
  options.model_path = path;
  options.method = method.name;
  options.profile = true;
  const Status status = engine.load(options);
  std::vector<Tensor> inputs;
  if (!status.ok() || !fits(method) || !make_inputs(method, &inputs)) {
    return status;
  }
  // Twice: the second time meets what the first has left.
  for (int turn = 0; turn < 2; ++turn) {
    SLIPWAY_RETURN_IF_ERROR(engine.set_inputs(inputs));
    SLIPWAY_RETURN_IF_ERROR(engine.execute());
  }
  engine.kernels();
  engine.fallbacks();
  const Result<std::vector<std::uint8_t>> profile = engine.profile();
  const Result<std::vector<Tensor>> outputs = engine.outputs();
  SLIPWAY_RETURN_IF_ERROR(outputs);
  digest(outputs.value(), trace);
  return profile.ok() ? Status() : profile.status();
}

}  // namespace

Status exercise(Engine& engine, const std::string& path, Trace* trace) {
  const Result<ProgramInfo> program = engine.describe(path);
  SLIPWAY_RETURN_IF_ERROR(program);
  for (const MethodInfo& method : program.value().methods) {
    SLIPWAY_RETURN_IF_ERROR(run_method(engine, path, method, trace));
  }
  return {};
}

}  // namespace slipway
