// Sums of elements that lie together: in several lanes, which processors add at once.
#pragma once

#include <cstddef>

namespace slipway::lean {

// The sum of f(i) for i from 0 to `count`. Integers wrap around.
template <typename T, typename F>
T sum_of(std::size_t count, F f) {
  constexpr std::size_t kLanes = 16;
  T lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      lanes[k] += f(i + k);
    }
  }
  T total{};
  for (; i < count; ++i) {
    total += f(i);
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t k = 0; k < half; ++k) {
      lanes[k] += lanes[k + half];
    }
  }
  return total + lanes[0];
}

// The sum of f(value) over values.
template <typename T, typename F>
T sum_of_each(const T* values, std::size_t count, F f) {
  return sum_of<T>(count, [&](std::size_t i) { return f(values[i]); });
}

template <typename T>
T sum_of_run(const T* values, std::size_t count) {
  return sum_of_each(values, count, [](T x) { return x; });
}

}  // namespace slipway::lean
