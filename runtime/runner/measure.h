// The executions that a run measures.
#pragma once

#include <chrono>
#include <vector>

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

double milliseconds_since(std::chrono::steady_clock::time_point start);

// Latencies of a run, in milliseconds.
struct LatencySummary {
  double min = 0;
  double p10 = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double mean = 0;
};

// The nearest-rank percentile: the smallest of the values such that at least `percent` per cent of them are
// not above it. Always one of the values, never an interpolation: with one value every percentile is that
// value, with ten p99 is the largest. `sorted` ascending and not empty; 0 < percent <= 100.
double nearest_rank(const std::vector<double>& sorted, double percent);

LatencySummary summarize(std::vector<double> latencies);

// Executes as often as `options` wants; milliseconds of each execution that is no warm-up. The clock runs
// around execute() alone.
Status measure(const Options& options, Engine& engine, const MethodInfo& method,
               const std::vector<Tensor>& inputs, std::vector<double>* latencies_ms);

}  // namespace slipway
