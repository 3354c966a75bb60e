// A row of floats to the mean 0 and the variance 1. One text for all widths of vectors, as attention_tile.h
// is.
#pragma once

#include "lean/kernels/attention_tile.h"

namespace slipway::lean {

// Writes (value - mean) * rstd * scale + shift, where values may lie; mean and rstd, which is 1 /
// sqrt(variance + eps), come into `moments`.
using NormalizeRow = void(const float* values, std::size_t count, float eps, const float* scale,
                          const float* shift, float* to, float* moments);

namespace avx2 {
extern NormalizeRow* const kNormalizeRow;
}
namespace avx512f {
extern NormalizeRow* const kNormalizeRow;
}

namespace rows {

// The sum of all (value - less) ^ kPower.
template <std::size_t Bytes, int kPower>
[[gnu::always_inline]] inline float sum_of(const float* values, std::size_t count, float less) {
  using Vector = typename attention::Lanes<Bytes>::Vector;
  constexpr std::size_t kLanes = attention::Lanes<Bytes>::kCount;
  const auto term = [less](auto x) { return kPower == 2 ? (x - less) * (x - less) : x; };
  Vector sums[4] = {};
  std::size_t at = 0;
  for (; at + 4 * kLanes <= count; at += 4 * kLanes) {
    Vector some[4];
    __builtin_memcpy(some, values + at, sizeof(some));
    for (std::size_t i = 0; i < 4; ++i) {
      sums[i] += term(some[i]);
    }
  }
  for (; at + kLanes <= count; at += kLanes) {
    Vector some;
    __builtin_memcpy(&some, values + at, Bytes);
    sums[0] += term(some);
  }
  float total = 0;
  for (; at < count; ++at) {
    total += term(values[at]);
  }
  const attention::Four four = attention::folded<Bytes>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  return total + ((four[0] + four[2]) + (four[1] + four[3]));
}

template <std::size_t Bytes>
void normalize(const float* values, std::size_t count, float eps, const float* scale, const float* shift,
               float* to, float* moments) {
  const auto size = static_cast<float>(count);
  const float mean = sum_of<Bytes, 1>(values, count, 0) / size;
  const float rstd = 1 / __builtin_sqrtf(sum_of<Bytes, 2>(values, count, mean) / size + eps);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = (values[i] - mean) * rstd * scale[i] + shift[i];
  }
  moments[0] = mean;
  moments[1] = rstd;
}

}  // namespace rows
}  // namespace slipway::lean
