#include "runner/measure.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "runner/inputs.h"
#include "runner/instructions.h"
#include "runner/report/latency.h"

namespace slipway {

Status measure(const Options& options, Engine& engine, const MethodInfo& method,
               const std::vector<Tensor>& inputs, Measured* measured) {
  measured->latencies_ms.reserve(options.num_executions);
  std::optional<InstructionCounter> counter;
  if (options.count_instructions) {
    counter.emplace();
    measured->instructions.reserve(options.num_executions);
  }
  const unsigned warmup = std::max(options.warmup, engine.least_warmup());
  for (unsigned i = 0; i < warmup + options.num_executions; ++i) {
    // Each time: a program may reuse its inputs' memory for intermediate values.
    SLIPWAY_RETURN_IF_ERROR(engine.set_inputs(inputs));
    const auto start = std::chrono::steady_clock::now();
    if (counter) {
      counter->begin();
    }
    const Status status = engine.execute();
    const std::uint64_t executed = counter ? counter->end() : 0;
    const double elapsed = milliseconds_since(start);
    if (!status.ok()) {
      return blame_inputs(status, method, inputs);
    }
    if (i < warmup) {
      continue;
    }
    measured->latencies_ms.push_back(elapsed);
    if (counter && counter->counts()) {
      measured->instructions.push_back(executed);
    }
  }
  return {};
}

}  // namespace slipway
