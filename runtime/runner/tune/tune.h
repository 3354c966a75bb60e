// Measures what could compute each layer of a program, on the very device that is to run it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/options.h"
#include "runner/tune/keyed_text.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

using Samples = std::vector<std::uint64_t>;  // nanoseconds of an execution, each from a load of its own

// The one in the middle; 0 for none.
std::uint64_t median_of(Samples samples);

struct CandidateTimes {
  std::string choice;
  double estimate = 0;
  bool rejected = false;  // it gave another answer
  Samples samples;
};

// Two loads right after one another, one with the engine's own choice.
struct TimedPair {
  std::uint64_t own = 0;
  std::uint64_t tuned = 0;
};

struct LayerTimes {
  std::string layer;
  std::string node;
  std::string own;  // the engine's choice
  std::vector<CandidateTimes> candidates;
  std::vector<TimedPair> checks;  // of the leader

  const CandidateTimes& engines_own() const;
  // Whether another measurement of the candidate may change what is picked.
  bool wants(const CandidateTimes& candidate) const;
  bool wants() const;
  // The fastest so far, where it seems to be faster than the engine's own; otherwise that. Of many that are
  // measured one is always lucky, so that it is measured again (`checks`).
  const CandidateTimes& leader() const;
  bool unchecked() const;
  // The leader, where the checks say the same; otherwise the engine's own.
  const CandidateTimes& pick() const;
  // Median times of the two.
  TimedPair times() const;
};

struct ThreadTimes {
  unsigned threads = 0;
  Samples samples;
};

// All that was measured so far.
struct Measurements {
  std::vector<ThreadTimes> runs;
  unsigned threads = 0;            // the best number; 0: not known yet
  std::vector<LayerTimes> layers;  // the costliest first
  std::vector<TimedPair> pairs;
};

// Reads what an interrupted run left for the layers in `known`; false when there is nothing to go on with.
bool read_measurements(const std::string& path, const TextOwner& owner, Measurements* known);
Status write_measurements(const std::string& path, const TextOwner& owner, const Measurements& found);

struct TuneReport {
  EngineInfo engine;
  std::string program_path;
  std::string method;
  std::string phase;     // "threads", "layers", "checks", "comparison", "done"
  double progress = 0;   // of the phase, 0 to 1
  bool already = false;  // the file had been made before: nothing was measured
  bool kept = false;
  std::string why;  // nothing was kept
  unsigned own_threads = 0;
  unsigned wins = 0;  // pairs in which the tuned kernels were faster
  Measurements found;
  KernelChoices choices;
};

// Goes on measuring for Options::tune_seconds at most, and keeps the best kernels in the file Options::tune
// when all is known; what was measured until then is beside it (".part").
Result<TuneReport> tune_kernels(const Options& options, Engine& engine, const std::vector<Tensor>& inputs);

// Whether outputs agree within each type's tolerance: |got - expected| <= t + t * |expected|, with 1e-5 for
// float32, 1e-9 for float64, 1e-2 for float16, 2e-2 for bfloat16; other types exactly.
bool outputs_agree(const std::vector<Tensor>& got, const std::vector<Tensor>& expected);

std::string tune_json(const TuneReport& report);
std::string tune_text(const TuneReport& report);

}  // namespace slipway
