// What is known while kernels are measured, and the file that keeps it between runs.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runner/tune/tune.h"

namespace slipway {
namespace {

constexpr char kStateTitle[] = "slipway tuning 1";
constexpr std::size_t kMostSamples = 9;
constexpr std::size_t kFewSamples = 4;  // for less, nothing is picked
constexpr double kUnlikely = 1.6;       // estimates beyond are not tried
constexpr double kNoise = 0.985;        // what is not faster than so is not picked
constexpr std::size_t kChecks = 11;
constexpr std::size_t kLeastWon = 9;  // of the checks: by chance three times in a hundred
constexpr std::uint64_t kMostRunThreads = 1024;

std::string number_word(std::uint64_t number) {
  return std::to_string(number);
}

bool parse_samples(const TextLine& line, std::size_t first, Samples* samples) {
  for (std::size_t i = first; i < line.size(); ++i) {
    std::uint64_t number = 0;
    if (!parse_whole(line[i], &number)) {
      return false;
    }
    samples->push_back(number);
  }
  return true;
}

CandidateTimes* candidate_in(Measurements* known, const std::string& layer, const std::string& choice) {
  for (LayerTimes& times : known->layers) {
    for (CandidateTimes& candidate : times.candidates) {
      if (times.layer == layer && candidate.choice == choice) {
        return &candidate;
      }
    }
  }
  return nullptr;
}

// One line of the file; false when it is not for these layers.
bool take_line(const TextLine& line, Measurements* known) {
  std::uint64_t number = 0;
  if (line[0] == "run" && line.size() >= 2 && parse_whole(line[1], &number) && number <= kMostRunThreads) {
    known->runs.push_back({static_cast<unsigned>(number), {}});
    return parse_samples(line, 2, &known->runs.back().samples);
  }
  if (line[0] == "threads" && line.size() == 2 && parse_whole(line[1], &number) &&
      number <= kMostRunThreads) {
    known->threads = static_cast<unsigned>(number);
    return true;
  }
  if (line[0] == "pair" && line.size() == 3) {
    Samples both;
    const bool read = parse_samples(line, 1, &both);
    if (read) {
      known->pairs.push_back({both[0], both[1]});
    }
    return read;
  }
  if (line[0] == "check" && line.size() == 4) {
    const auto layer = std::find_if(known->layers.begin(), known->layers.end(),
                                    [&](const LayerTimes& one) { return one.layer == line[1]; });
    Samples both;
    if (layer == known->layers.end() || !parse_samples(line, 2, &both)) {
      return false;
    }
    layer->checks.push_back({both[0], both[1]});
    return true;
  }
  if ((line[0] == "sample" || line[0] == "reject") && line.size() >= 3) {
    CandidateTimes* candidate = candidate_in(known, line[1], line[2]);
    if (candidate == nullptr) {
      return false;
    }
    candidate->rejected = candidate->rejected || line[0] == "reject";
    return parse_samples(line, 3, &candidate->samples);
  }
  return false;
}

}  // namespace

std::uint64_t median_of(Samples samples) {
  if (samples.empty()) {
    return 0;
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

const CandidateTimes& LayerTimes::engines_own() const {
  for (const CandidateTimes& candidate : candidates) {
    if (candidate.choice == own) {
      return candidate;
    }
  }
  return candidates.front();
}

bool LayerTimes::wants(const CandidateTimes& candidate) const {
  const std::size_t count = candidate.samples.size();
  if (candidates.size() < 2 || candidate.rejected || count >= kMostSamples) {
    return false;
  }
  if (candidate.choice == own) {
    return true;
  }
  if (candidate.estimate > kUnlikely || count < 2) {
    return candidate.estimate <= kUnlikely;
  }
  std::uint64_t best = UINT64_MAX;
  for (const CandidateTimes& other : candidates) {
    if (!other.rejected && other.samples.size() >= 2) {
      best = std::min(best, median_of(other.samples));
    }
  }
  const double limit = count < 3 ? 1.3 : count < 5 ? 1.12 : 1.05;
  return static_cast<double>(median_of(candidate.samples)) <= static_cast<double>(best) * limit;
}

bool LayerTimes::wants() const {
  return std::any_of(candidates.begin(), candidates.end(),
                     [&](const CandidateTimes& one) { return one.choice != own && wants(one); }) ||
         (candidates.size() > 1 && wants(engines_own()));
}

bool LayerTimes::unchecked() const {
  return leader().choice != own && checks.size() < kChecks;
}

const CandidateTimes& LayerTimes::pick() const {
  std::vector<double> ratios;
  std::size_t won = 0;
  for (const TimedPair& check : checks) {
    ratios.push_back(static_cast<double>(check.tuned) / std::max(1.0, static_cast<double>(check.own)));
    won += check.tuned < check.own ? 1 : 0;
  }
  std::sort(ratios.begin(), ratios.end());
  const bool faster = ratios.size() >= kChecks && won >= kLeastWon && ratios[ratios.size() / 2] <= kNoise;
  return faster ? leader() : engines_own();
}

TimedPair LayerTimes::times() const {
  const CandidateTimes& picked = pick();
  if (picked.choice == own) {
    return {median_of(engines_own().samples), median_of(engines_own().samples)};
  }
  Samples mine;
  Samples tuned;
  for (const TimedPair& check : checks) {
    mine.push_back(check.own);
    tuned.push_back(check.tuned);
  }
  return {median_of(mine), median_of(tuned)};
}

const CandidateTimes& LayerTimes::leader() const {
  const CandidateTimes& mine = engines_own();
  const CandidateTimes* best = &mine;
  if (mine.samples.size() < kFewSamples) {
    return mine;
  }
  for (const CandidateTimes& candidate : candidates) {
    if (!candidate.rejected && candidate.samples.size() >= kFewSamples &&
        median_of(candidate.samples) < median_of(best->samples)) {
      best = &candidate;
    }
  }
  const bool faster =
      static_cast<double>(median_of(best->samples)) < kNoise * static_cast<double>(median_of(mine.samples));
  return faster ? *best : mine;
}

bool read_measurements(const std::string& path, const TextOwner& owner, Measurements* known) {
  const Result<std::vector<TextLine>> lines = read_text(path, kStateTitle, owner, true);
  if (!lines.ok()) {
    return false;
  }
  Measurements found = *known;
  for (const TextLine& line : lines.value()) {
    if (!take_line(line, &found)) {
      return false;
    }
  }
  *known = std::move(found);
  return true;
}

Status write_measurements(const std::string& path, const TextOwner& owner, const Measurements& found) {
  std::vector<TextLine> lines;
  const auto put = [&](TextLine line, const Samples& samples) {
    for (const std::uint64_t sample : samples) {
      line.push_back(number_word(sample));
    }
    lines.push_back(std::move(line));
  };
  for (const ThreadTimes& run : found.runs) {
    put({"run", number_word(run.threads)}, run.samples);
  }
  if (found.threads != 0) {
    lines.push_back({"threads", number_word(found.threads)});
  }
  for (const LayerTimes& layer : found.layers) {
    for (const CandidateTimes& candidate : layer.candidates) {
      if (!candidate.samples.empty() || candidate.rejected) {
        put({candidate.rejected ? "reject" : "sample", layer.layer, candidate.choice}, candidate.samples);
      }
    }
  }
  for (const LayerTimes& layer : found.layers) {
    for (const TimedPair& check : layer.checks) {
      lines.push_back({"check", layer.layer, number_word(check.own), number_word(check.tuned)});
    }
  }
  for (const TimedPair& pair : found.pairs) {
    lines.push_back({"pair", number_word(pair.own), number_word(pair.tuned)});
  }
  return write_text(path, kStateTitle, owner, lines);
}

}  // namespace slipway
