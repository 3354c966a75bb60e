// Choosing the next token of a text from a language model's scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace slipway {

struct Sampling {
  double temperature = 0;  // 0: always the likeliest token
  unsigned top_k = 0;      // only the likeliest K tokens; 0: all
  double top_p = 1;        // only the likeliest tokens whose probabilities together reach P
  std::uint64_t seed = 0;  // the same seed gives the same text, on every processor whose scores are the same
};

class Sampler {
 public:
  explicit Sampler(const Sampling& sampling) : sampling_(sampling), state_(sampling.seed) {}

  // The index of one of `count` scores (logits), the first of equal ones; -1 when none of them is a number.
  std::int64_t pick(const float* scores, std::size_t count);

 private:
  using Candidate = std::pair<double, std::int64_t>;  // a score, and then its probability; the token

  double next_random();  // at least 0, below 1

  Sampling sampling_;
  std::uint64_t state_;
  std::vector<Candidate> candidates_;
};

}  // namespace slipway
