// The executions that a run measures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"
#include "text/session.h"

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
// not above it, never an interpolation. `sorted` ascending and not empty; 0 < percent <= 100.
double nearest_rank(const std::vector<double>& sorted, double percent);

LatencySummary summarize(std::vector<double> latencies);

struct Measured {
  std::vector<double> latencies_ms;
  // Of each; empty unless they were wanted and something counts them.
  std::vector<std::uint64_t> instructions;
};

// Executes as often as `options` wants. The clock runs around execute() alone.
Status measure(const Options& options, Engine& engine, const MethodInfo& method,
               const std::vector<Tensor>& inputs, Measured* measured);

// A run that reads a prompt and writes tokens after it.

struct Generated {
  std::int64_t prompt_tokens = 0;
  double prompt_ms = 0;  // until the first token is chosen
  std::vector<std::int64_t> tokens;
  std::vector<double> token_ms;  // of each token but the first: reading the one before it, and choosing
  const char* ended = "";        // why it wrote no more: "stop", "length" or "context"
  TextModel model;
  std::vector<float> first_scores;  // those of the token that follows the prompt
  // Of reading the prompt, then of each further token; empty unless they were wanted and something counts.
  std::vector<std::uint64_t> instructions;
};

// Who hears of a text while it is written.
struct TextListener {
  std::function<Status(std::int64_t)> token;  // each, as it comes
  // A text has ended, and the next one is waited for; with all that was written so far, and the tokens read.
  std::function<Status(const Generated& found, std::int64_t position)> turn;
};

// Reads the prompt and writes the tokens that `options` wants; text_methods_of(program) must be loaded, too.
Result<Generated> generate(const Options& options, Engine& engine, const ProgramInfo& program,
                           const MethodInfo& method, const TextListener& listener);

// The tokens written [n], and the scores of the first of them [vocabulary].
std::vector<Tensor> outputs_of(const Generated& generated);

}  // namespace slipway
