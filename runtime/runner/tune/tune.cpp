#include "runner/tune/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "base/platform.h"
#include "runner/tune/kernel_plan.h"
#include "runner/tune/tune_trial.h"

namespace slipway {
namespace {

using TuneClock = std::chrono::steady_clock;

constexpr std::size_t kThreadSamples = 7;
constexpr std::size_t kPairs = 21;
constexpr double kChecksShown = 11;   // for how far the checks are
constexpr unsigned kLeastWins = 16;   // of these pairs: by chance 13 times in a thousand
constexpr double kLeastGain = 0.99;   // a tuned execution takes at most so much of the other's time
constexpr double kThreadGain = 0.97;  // the same for another number of threads
constexpr double kFrontShare = 0.95;  // of the time: layers that are measured first
constexpr double kSaveSeconds = 2;

double seconds_since(TuneClock::time_point start) {
  return std::chrono::duration<double>(TuneClock::now() - start).count();
}

class Tuner {
 public:
  Tuner(const Options& options, Engine& engine, const std::vector<Tensor>& inputs)
      : options_(options),
        engine_(engine),
        owner_(text_owner(options, engine)),
        part_(options.tune + ".part"),
        random_(static_cast<std::mt19937::result_type>(wall_clock())),
        trials_(options, engine, inputs) {}

  Result<TuneReport> go() {
    report_.engine = engine_.info();
    report_.program_path = options_.model_path;
    report_.method = options_.method_name;
    report_.own_threads =
        options_.cpu_threads != 0 ? options_.cpu_threads : std::min(usable_cores(), kMostThreads);
    SLIPWAY_RETURN_IF_ERROR(check_threads(report_.own_threads));
    const Result<KernelChoices> before = read_choices(options_.tune, owner_, true);
    if (before.ok()) {
      report_.already = report_.kept = true;
      report_.choices = before.value();
      report_.phase = "done";
      report_.progress = 1;
      return report_;
    }
    Status status = begin();
    if (status.ok()) {
      status = measure();
    }
    if (status.ok() && report_.phase != "done") {
      status = write_measurements(part_, owner_, found());
    }
    return status.ok() ? Result<TuneReport>(report_) : status;
  }

 private:
  Measurements& found() { return report_.found; }
  // Each process gets on by one step at least, however slow the device is.
  bool late() const {
    return moved_ && !options_.tune_finish && seconds_since(start_) > options_.tune_seconds;
  }

  Result<Trial> trial(const Wishes& wishes, bool layers) { return trials_.load(wishes, layers); }

  Status use_threads(unsigned count) {
    const Result<unsigned> got = engine_.set_threads(count);
    return got.ok() ? Status() : got.status();
  }

  // The layers by what they take, and what an earlier process measured of them.
  Status begin() {
    SLIPWAY_RETURN_IF_ERROR(use_threads(report_.own_threads));
    const Result<Trial> first = trial({}, true);
    SLIPWAY_RETURN_IF_ERROR(first);
    trials_.set_executions(first.value().whole);
    for (const KernelUse& use : engine_.kernels()) {
      const bool known = std::any_of(found().layers.begin(), found().layers.end(),
                                     [&](const LayerTimes& layer) { return layer.layer == use.layer; });
      if (use.candidates.empty() || known) {
        continue;
      }
      LayerTimes layer;
      layer.layer = use.layer;
      layer.node = use.node;
      layer.own = use.own_choice;
      for (const KernelCandidate& candidate : use.candidates) {
        layer.candidates.push_back({candidate.choice, candidate.estimate, false, {}});
      }
      found().layers.push_back(std::move(layer));
    }
    const std::map<std::string, std::uint64_t>& times = first.value().layers;
    const auto cost = [&](const LayerTimes& layer) {
      const auto time = times.find(layer.layer);
      return time == times.end() ? 0 : time->second;
    };
    std::sort(found().layers.begin(), found().layers.end(),
              [&](const LayerTimes& one, const LayerTimes& other) {
                return std::make_pair(cost(other), one.layer) < std::make_pair(cost(one), other.layer);
              });
    double all = 0;
    for (const LayerTimes& layer : found().layers) {
      all += static_cast<double>(cost(layer));
    }
    double sum = 0;
    for (const LayerTimes& layer : found().layers) {
      front_ += sum <= kFrontShare * all ? 1 : 0;
      sum += static_cast<double>(cost(layer));
    }
    read_measurements(part_, owner_, &report_.found);
    return {};
  }

  Status measure() {
    Status status = find_threads();
    if (status.ok() && found().threads != 0) {
      status = use_threads(found().threads);
      if (status.ok()) {
        status = find_kernels();
      }
      if (status.ok() && report_.phase == "comparison") {
        status = compare();
      }
    }
    return status;
  }

  // The best number of threads, with the engine's own choice of kernels.
  Status find_threads() {
    report_.phase = "threads";
    std::vector<ThreadTimes>& runs = found().runs;
    if (runs.empty()) {
      for (unsigned count = 1; options_.cpu_threads == 0 && count < report_.own_threads; count *= 2) {
        runs.push_back({count, {}});
      }
      runs.push_back({report_.own_threads, {}});
    }
    const bool one = runs.size() == 1;
    while (found().threads == 0 && !one && !options_.tune_finish) {
      const auto fewest = std::min_element(runs.begin(), runs.end(), [](const auto& run, const auto& other) {
        return run.samples.size() < other.samples.size();
      });
      const std::size_t rounds = fewest->samples.size();
      report_.progress = static_cast<double>(rounds) / kThreadSamples;
      if (rounds >= kThreadSamples) {
        break;
      }
      if (late()) {
        return {};
      }
      std::vector<std::size_t> order(runs.size());
      for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
      }
      std::shuffle(order.begin(), order.end(), random_);
      for (const std::size_t i : order) {
        if (runs[i].samples.size() > rounds) {
          continue;
        }
        SLIPWAY_RETURN_IF_ERROR(use_threads(runs[i].threads));
        const Result<Trial> done = trial({}, false);
        SLIPWAY_RETURN_IF_ERROR(done);
        runs[i].samples.push_back(done.value().whole);
      }
      SLIPWAY_RETURN_IF_ERROR(save());
    }
    if (found().threads == 0) {
      found().threads = report_.own_threads;
      std::uint64_t best = median_of(runs.back().samples);
      double limit = kThreadGain;
      for (const ThreadTimes& run : runs) {
        const std::uint64_t time = median_of(run.samples);
        if (run.samples.size() >= kThreadSamples &&
            static_cast<double>(time) < limit * static_cast<double>(best)) {
          found().threads = run.threads;
          best = time;
          limit = 1;
        }
      }
    }
    return {};
  }

  // How far the layers' measurements are.
  double layers_progress() const {
    double done = 0;
    double all = 0;
    for (const LayerTimes& layer : report_.found.layers) {
      for (const CandidateTimes& candidate : layer.candidates) {
        const bool open = layer.wants(candidate);
        all += open || !candidate.samples.empty() ? 1 : 0;
        done += !open && !candidate.samples.empty() ? 1 : 0;
      }
    }
    return all == 0 ? 1 : done / all;
  }

  // What a layer is computed by in the next trial: what was measured least, in random order.
  const CandidateTimes* next_of(const LayerTimes& layer) {
    std::vector<const CandidateTimes*> open;
    for (const CandidateTimes& candidate : layer.candidates) {
      if (layer.wants(candidate)) {
        open.push_back(&candidate);
      }
    }
    std::shuffle(open.begin(), open.end(), random_);
    const auto least = std::min_element(open.begin(), open.end(), [](const auto* one, const auto* other) {
      return one->samples.size() < other->samples.size();
    });
    return least == open.end() ? nullptr : *least;
  }

  Status find_kernels() {
    report_.phase = "layers";
    std::vector<LayerTimes>& layers = found().layers;
    while (!options_.tune_finish) {
      report_.progress = layers_progress();
      const auto open = [](const LayerTimes& layer) { return layer.wants(); };
      const auto front_end = layers.begin() + static_cast<std::ptrdiff_t>(front_);
      const auto end = std::any_of(layers.begin(), front_end, open) ? front_end : layers.end();
      if (!std::any_of(layers.begin(), end, open)) {
        break;
      }
      if (late()) {
        return {};
      }
      Wishes wishes;
      std::map<std::string, std::string> measured;
      for (auto layer = layers.begin(); layer != end; ++layer) {
        const CandidateTimes* next = next_of(*layer);
        const std::string& choice = next == nullptr ? layer->leader().choice : next->choice;
        if (next != nullptr) {
          measured[layer->layer] = choice;
        }
        if (choice != layer->own) {
          wishes[layer->layer] = choice;
        }
      }
      const Result<Trial> done = trial(wishes, true);
      SLIPWAY_RETURN_IF_ERROR(done);
      if (!done.value().agrees) {
        SLIPWAY_RETURN_IF_ERROR(blame({wishes.begin(), wishes.end()}));
        continue;
      }
      note(measured, done.value());
      SLIPWAY_RETURN_IF_ERROR(save());
    }
    return check_leaders();
  }

  // What leads against the engine's own choice, layer by layer, measured anew and in turns.
  Status check_leaders() {
    report_.phase = "checks";
    std::vector<LayerTimes>& layers = found().layers;
    const auto open = [](const LayerTimes& layer) { return layer.unchecked(); };
    while (std::any_of(layers.begin(), layers.end(), open)) {
      std::size_t least = kPairs;
      Wishes wishes;
      for (const LayerTimes& layer : layers) {
        if (layer.leader().choice != layer.own) {
          wishes[layer.layer] = layer.leader().choice;
          least = std::min(least, layer.checks.size());
        }
      }
      report_.progress = static_cast<double>(least) / kChecksShown;
      if (late()) {
        return {};
      }
      std::map<std::string, TimedPair> pairs;
      bool agrees = true;
      const bool tuned_first = random_() % 2 == 0;
      for (const bool tuned : {tuned_first, !tuned_first}) {
        const Result<Trial> done = trial(tuned ? wishes : Wishes(), true);
        SLIPWAY_RETURN_IF_ERROR(done);
        agrees = agrees && done.value().agrees;
        for (const auto& [layer, time] : done.value().layers) {
          (tuned ? pairs[layer].tuned : pairs[layer].own) = time;
        }
      }
      if (!agrees) {
        SLIPWAY_RETURN_IF_ERROR(blame({wishes.begin(), wishes.end()}));
        for (LayerTimes& layer : layers) {
          layer.checks.clear();
        }
        continue;
      }
      for (LayerTimes& layer : layers) {
        if (layer.unchecked()) {
          layer.checks.push_back(pairs[layer.layer]);
        }
      }
      SLIPWAY_RETURN_IF_ERROR(save());
    }
    report_.phase = "comparison";
    return {};
  }

  void note(const std::map<std::string, std::string>& measured, const Trial& done) {
    found().pairs.clear();  // of another outcome
    for (LayerTimes& layer : found().layers) {
      const auto choice = measured.find(layer.layer);
      const auto time = done.layers.find(layer.layer);
      for (CandidateTimes& candidate : layer.candidates) {
        if (choice != measured.end() && candidate.choice == choice->second) {
          // A layer that cannot be timed is measured as if it took nothing: it is never picked.
          candidate.samples.push_back(time == done.layers.end() ? 0 : time->second);
        }
      }
    }
  }

  // Finds the kernels that gave another answer, and tries them no more.
  Status blame(const std::vector<std::pair<std::string, std::string>>& suspects) {
    if (suspects.size() == 1) {
      for (LayerTimes& layer : found().layers) {
        for (CandidateTimes& candidate : layer.candidates) {
          candidate.rejected = candidate.rejected || (layer.layer == suspects.front().first &&
                                                      candidate.choice == suspects.front().second);
        }
      }
      return {};
    }
    const auto middle = suspects.begin() + static_cast<std::ptrdiff_t>(suspects.size() / 2);
    bool guilty = false;
    for (const auto& half : {std::vector<std::pair<std::string, std::string>>(suspects.begin(), middle),
                             std::vector<std::pair<std::string, std::string>>(middle, suspects.end())}) {
      const Result<Trial> done = trial({half.begin(), half.end()}, false);
      SLIPWAY_RETURN_IF_ERROR(done);
      if (!done.value().agrees) {
        guilty = true;
        SLIPWAY_RETURN_IF_ERROR(blame(half));
      }
    }
    // Only together they differ too much: then it is the last of them.
    return guilty || suspects.empty() ? Status() : blame({suspects.back()});
  }

  // What was picked against the engine's own choice, in turns.
  Status compare() {
    Wishes wishes;
    for (const LayerTimes& layer : found().layers) {
      const CandidateTimes& pick = layer.pick();
      if (pick.choice != layer.own) {
        wishes[layer.layer] = pick.choice;
        const TimedPair times = layer.times();
        report_.choices.layers.push_back({layer.layer, pick.choice, layer.own, times.own, times.tuned});
      }
    }
    if (wishes.empty() && found().threads == report_.own_threads) {
      return finish("nothing that was measured is faster than what the engine chooses by itself");
    }
    while (found().pairs.size() < kPairs) {
      report_.progress = static_cast<double>(found().pairs.size()) / kPairs;
      if (late()) {
        return {};
      }
      TimedPair pair;
      const bool tuned_first = random_() % 2 == 0;
      for (const bool tuned : {tuned_first, !tuned_first}) {
        if (found().threads != report_.own_threads) {
          SLIPWAY_RETURN_IF_ERROR(use_threads(tuned ? found().threads : report_.own_threads));
        }
        const Result<Trial> done = trial(tuned ? wishes : Wishes(), false);
        SLIPWAY_RETURN_IF_ERROR(done);
        if (!done.value().agrees) {
          return finish(
              "the outputs differ from those of the engine's own choice by more than the tolerance");
        }
        (tuned ? pair.tuned : pair.own) = done.value().whole;
      }
      found().pairs.push_back(pair);
      SLIPWAY_RETURN_IF_ERROR(save());
    }
    return judge();
  }

  Status judge() {
    Samples own;
    std::vector<double> ratios;
    for (const TimedPair& pair : found().pairs) {
      own.push_back(pair.own);
      ratios.push_back(static_cast<double>(pair.tuned) / std::max(1.0, static_cast<double>(pair.own)));
      report_.wins += pair.tuned < pair.own ? 1 : 0;
    }
    std::sort(ratios.begin(), ratios.end());
    // Both change with the machine's load; what the pairs say of their ratio changes less.
    const double ratio = ratios[ratios.size() / 2];
    report_.choices.own_ns = median_of(own);
    report_.choices.tuned_ns =
        static_cast<std::uint64_t>(ratio * static_cast<double>(report_.choices.own_ns));
    if (report_.wins < kLeastWins || ratio > kLeastGain) {
      return finish("the tuned kernels are not faster beyond noise");
    }
    report_.choices.threads = options_.cpu_threads == 0 ? found().threads : 0;
    SLIPWAY_RETURN_IF_ERROR(write_choices(options_.tune, owner_, report_.choices));
    report_.kept = true;
    return finish("");
  }

  Status finish(const std::string& why) {
    report_.why = why;
    report_.phase = "done";
    report_.progress = 1;
    std::remove(part_.c_str());
    return {};
  }

  // Not after every load: a card's memory wears out.
  Status save() {
    moved_ = true;
    if (seconds_since(saved_) < kSaveSeconds) {
      return {};
    }
    saved_ = TuneClock::now();
    return write_measurements(part_, owner_, found());
  }

  const Options& options_;
  Engine& engine_;
  TextOwner owner_;
  std::string part_;
  std::mt19937 random_;
  TuneClock::time_point start_ = TuneClock::now();
  TuneClock::time_point saved_ = start_;
  bool moved_ = false;     // something was measured
  std::size_t front_ = 0;  // layers that are measured first
  Trials trials_;
  TuneReport report_;
};

}  // namespace

Result<TuneReport> tune_kernels(const Options& options, Engine& engine, const std::vector<Tensor>& inputs) {
  if (engine.processor().empty()) {
    return Status(Code::kUsage, "The engine " + engine.info().name + " has no choice of kernels.",
                  "leave --tune to bundles of the engine lean");
  }
  return Tuner(options, engine, inputs).go();
}

}  // namespace slipway
