#include "runner/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>

#include "runner/inputs.h"

namespace slipway {
namespace {

// The count so far; 0 where nothing counts. The instruction changes nothing on any processor, and no compiler
// writes it; a machine that counts puts the count into its register. Not inlined: each call costs the same.
#if defined(__aarch64__)
[[gnu::noinline]] std::uint64_t executed() {
  register std::uint64_t count __asm__("x0") = 0;
  __asm__ volatile(".inst 0xaa1f9400" : "+r"(count) : : "memory");  // orr x0, x0, xzr, lsl #37
  return count;
}
#elif defined(__arm__) && !defined(__thumb__)
[[gnu::noinline]] std::uint64_t executed() {
  register std::uint32_t count __asm__("r0") = 0;
  __asm__ volatile(".inst 0xe3800700" : "+r"(count) : : "memory");  // orr r0, r0, #0, ror #14
  return count;
}
#else
std::uint64_t executed() {
  return 0;
}
#endif

// A count of 32 bits begins again at 0.
std::uint64_t between(std::uint64_t begin, std::uint64_t end) {
  return sizeof(void*) == 4 ? static_cast<std::uint32_t>(end - begin) : end - begin;
}

}  // namespace

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

InstructionCounter::InstructionCounter() {
  std::vector<std::uint64_t> costs;
  for (int i = 0; i < 9; ++i) {
    begin();
    costs.push_back(end());
  }
  cost_ = *std::min_element(costs.begin(), costs.end());
  counts_ = cost_ != 0;
}

void InstructionCounter::begin() {
  begin_ = executed();
}

std::uint64_t InstructionCounter::end() {
  const std::uint64_t all = between(begin_, executed());
  return all - std::min(all, cost_);
}

}  // namespace slipway
