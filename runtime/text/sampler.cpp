#include "text/sampler.h"

#include <algorithm>
#include <cmath>

namespace slipway {
namespace {

constexpr std::size_t kScoreLanes = 16;
constexpr std::size_t kScoreBlock = 64 * kScoreLanes;

// The largest score of a block; minus infinity if none is above that. Compilers make vectors of the lanes.
float most_of(const float* scores) {
  float most[kScoreLanes];
  std::fill_n(most, kScoreLanes, -HUGE_VALF);
  for (std::size_t i = 0; i < kScoreBlock; i += kScoreLanes) {
    for (std::size_t lane = 0; lane < kScoreLanes; ++lane) {
      most[lane] = scores[i + lane] > most[lane] ? scores[i + lane] : most[lane];
    }
  }
  return *std::max_element(most, most + kScoreLanes);
}

// A NaN is never the likeliest; of equal ones the first is. A block without a larger score is passed over.
std::int64_t likeliest(const float* scores, std::size_t count) {
  std::int64_t best = -1;
  for (std::size_t i = 0; i < count;) {
    const std::size_t end = std::min(count, i + kScoreBlock);
    if (best >= 0 && end - i == kScoreBlock && !(most_of(scores + i) > scores[best])) {
      i = end;
    }
    for (; i < end; ++i) {
      if (!std::isnan(scores[i]) && (best < 0 || scores[i] > scores[best])) {
        best = static_cast<std::int64_t>(i);
      }
    }
  }
  return best;
}

}  // namespace

// SplitMix64 by Steele, Lea and Flood (OOPSLA 2014): a counter and two multiplications.
double Sampler::next_random() {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t bits = state_;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  bits ^= bits >> 31U;
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

std::int64_t Sampler::pick(const float* scores, std::size_t count) {
  const std::int64_t best = likeliest(scores, count);
  if (best < 0 || sampling_.temperature <= 0 || std::isinf(scores[best])) {
    return best;
  }
  candidates_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isnan(scores[i])) {
      candidates_.emplace_back(scores[i], static_cast<std::int64_t>(i));
    }
  }
  const auto before = [](const Candidate& left, const Candidate& right) {
    return left.first > right.first || (left.first == right.first && left.second < right.second);
  };
  const std::size_t kept =
      sampling_.top_k == 0 ? candidates_.size() : std::min<std::size_t>(sampling_.top_k, candidates_.size());
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
  std::partial_sort(candidates_.begin(), end, candidates_.end(), before);
  candidates_.erase(end, candidates_.end());
  double all = 0;
  for (Candidate& candidate : candidates_) {
    candidate.first = std::exp((candidate.first - scores[best]) / sampling_.temperature);
    all += candidate.first;
  }
  double sum = 0;
  std::size_t within = 0;
  while (within < candidates_.size() && (within == 0 || sum < sampling_.top_p * all)) {
    sum += candidates_[within++].first;
  }
  double left = next_random() * sum;
  for (std::size_t i = 0; i < within; ++i) {
    left -= candidates_[i].first;
    if (left < 0) {
      return candidates_[i].second;
    }
  }
  return candidates_[within - 1].second;
}

}  // namespace slipway
