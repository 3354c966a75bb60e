// The documents pte_runner prints: JSON (docs/runner.md has the schema), and a run and errors as text, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/platform.h"
#include "runner/files/digests.h"
#include "runner/measure.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

struct TensorReport {
  DType dtype = DType::kUnknown;
  Shape shape;
  std::string sha256;
  std::string file;  // outputs only; empty when it was not written
};

struct RunReport {
  EngineInfo engine;
  std::string program_path;
  std::uint64_t program_size = 0;
  std::vector<FileDigest> digests;
  std::string method;
  double load_ms = 0;
  Measured measured;
  unsigned warmup = 0;
  std::uint64_t peak_rss = 0;
  unsigned threads = 0;
  std::vector<TensorReport> inputs;
  std::vector<TensorReport> outputs;
  Capabilities capabilities;
  CpuInfo cpu;
  std::vector<std::pair<std::string, std::string>> settings;
  Placement placement;
  std::vector<KernelUse> kernels;
  std::vector<Fallback> fallbacks;
  std::optional<WeightsInfo> weights;
  std::optional<Generated> generated;
  bool profiled = false;
  std::vector<ProfileRow> profile;
};

std::string run_json(const RunReport& report);
std::string run_text(const RunReport& report);

// What a method asks for and this runner does not have: what Engine::examine found, else by the lists.
std::vector<std::string> missing_operators(const MethodInfo& method, const Capabilities& capabilities,
                                           const std::vector<std::string>& found);

std::string describe_json(const EngineInfo& engine, const std::string& path, const ProgramInfo& program,
                          const Capabilities& capabilities, const std::vector<std::string>& found_missing);

std::string capabilities_json(const EngineInfo& engine, const Capabilities& capabilities, const CpuInfo& cpu);

std::string error_json(const Status& status);
std::string error_text(const Status& status);

// What is in `wanted` and not in `offered`; both sorted.
std::vector<std::string> missing(const std::vector<std::string>& wanted,
                                 const std::vector<std::string>& offered);

}  // namespace slipway
