#include "runner/tune/tune_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "runner/tune/tune.h"

namespace slipway {
namespace {

constexpr double kTrialNs = 60e6;  // that the executions of one load take together
constexpr double kLeastExecutions = 3;
constexpr double kMostExecutions = 15;

// The mean of the lower half: what interrupts makes some longer, and nothing makes one shorter.
std::uint64_t undisturbed(Samples samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t count = (samples.size() + 1) / 2;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += samples[i];
  }
  return count == 0 ? 0 : sum / count;
}

}  // namespace

void Trials::set_executions(std::uint64_t nanoseconds) {
  const double wanted = std::round(kTrialNs / std::max(1.0, static_cast<double>(nanoseconds)));
  executions_ = static_cast<unsigned>(std::min(kMostExecutions, std::max(kLeastExecutions, wanted)));
}

Result<Trial> Trials::load(const Wishes& wishes, bool layers) {
  LoadOptions load;
  load.model_path = options_.model_path;
  load.data_path = options_.data_path;
  load.method = options_.method_name;
  load.profile = layers;
  load.kernels = wishes;
  SLIPWAY_RETURN_IF_ERROR(engine_.load(load));
  Trial done;
  Samples whole;
  std::map<std::string, Samples> each;
  // The first execution finds the shapes, and what it gives is compared: later ones may depend on it.
  for (unsigned i = 0; i <= executions_; ++i) {
    SLIPWAY_RETURN_IF_ERROR(engine_.set_inputs(inputs_));
    const auto start = std::chrono::steady_clock::now();
    SLIPWAY_RETURN_IF_ERROR(engine_.execute());
    const auto took = std::chrono::steady_clock::now() - start;
    if (i == 0) {
      Result<std::vector<Tensor>> outputs = engine_.outputs();
      SLIPWAY_RETURN_IF_ERROR(outputs);
      if (expected_.empty()) {
        expected_ = std::move(outputs.value());
      } else {
        done.agrees = outputs_agree(outputs.value(), expected_);
      }
      continue;
    }
    whole.push_back(static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count()));
    if (layers) {
      for (const auto& [layer, nanoseconds] : engine_.layer_times()) {
        each[layer].push_back(nanoseconds);
      }
    }
  }
  done.whole = undisturbed(whole);
  for (const auto& [layer, samples] : each) {
    done.layers[layer] = undisturbed(samples);
  }
  return done;
}

}  // namespace slipway
