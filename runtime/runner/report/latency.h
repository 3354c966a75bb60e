#pragma once

#include <chrono>
#include <vector>

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

}  // namespace slipway
