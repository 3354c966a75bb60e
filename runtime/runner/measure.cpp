#include "runner/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "runner/inputs.h"

namespace slipway {

Status measure(const Options& options, Engine& engine, const MethodInfo& method,
               const std::vector<Tensor>& inputs, std::vector<double>* latencies_ms) {
  latencies_ms->reserve(options.num_executions);
  const unsigned warmup = std::max(options.warmup, engine.least_warmup());
  for (unsigned i = 0; i < warmup + options.num_executions; ++i) {
    // Each time: a program may reuse its inputs' memory for intermediate values.
    SLIPWAY_RETURN_IF_ERROR(engine.set_inputs(inputs));
    const auto start = std::chrono::steady_clock::now();
    const Status status = engine.execute();
    const double elapsed = milliseconds_since(start);
    if (!status.ok()) {
      return blame_inputs(status, method, inputs);
    }
    if (i < warmup) {
      continue;
    }
    latencies_ms->push_back(elapsed);
  }
  return {};
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double nearest_rank(const std::vector<double>& sorted, double percent) {
  const auto count = static_cast<double>(sorted.size());
  // percent * count first: 0.9 * 10 is not 9 in binary, 90 * 10 / 100 is.
  const auto rank = static_cast<std::size_t>(std::ceil(percent * count / 100.0));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

LatencySummary summarize(std::vector<double> latencies) {
  if (latencies.empty()) {
    return {};
  }
  std::sort(latencies.begin(), latencies.end());
  const double sum = std::accumulate(latencies.begin(), latencies.end(), 0.0);
  return {latencies.front(),           nearest_rank(latencies, 10),
          nearest_rank(latencies, 50), nearest_rank(latencies, 90),
          nearest_rank(latencies, 99), sum / static_cast<double>(latencies.size())};
}

}  // namespace slipway
