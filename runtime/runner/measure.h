// The executions that a run measures.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

struct Measured {
  std::vector<double> latencies_ms;
  std::vector<std::uint64_t>
      instructions;  // of each; empty unless they were wanted and something counts them
};

// Executes as often as `options` wants. The clock runs around execute() alone.
Status measure(const Options& options, Engine& engine, const MethodInfo& method,
               const std::vector<Tensor>& inputs, Measured* measured);

}  // namespace slipway
