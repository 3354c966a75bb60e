// Element types for kernels: conversions to and from the few types that arithmetic is done in.
//
// A kernel computes in int64 (integers and bool), float (float32, float16, bfloat16) or double, a block at a
// time, and converts at both ends. So an operator costs three loops, not one for every pair of types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lean/data/evalue.h"
#include "lean/kernels/vector_math.h"
#include "slipway/tensor.h"

namespace slipway::lean {

std::uint16_t float_to_half(float value);      // to nearest, ties to even
std::uint16_t float_to_bfloat16(float value);  // to nearest, ties to even
// Towards zero; the nearest there is beyond an integer's range, 0 for what is no number.
std::int64_t to_int64(double value);

enum class Domain : std::uint8_t { kInt, kFloat, kDouble };

// The element type whose elements are T's: int64_t, float or double.
template <typename T>
constexpr DType dtype_of() {
  return std::is_same_v<T, double>  ? DType::kFloat64
         : std::is_same_v<T, float> ? DType::kFloat32
                                    : DType::kInt64;
}

// Calls f with an unsigned number as wide as an element of `size` bytes: 1, 2, 4 or 8.
template <typename F>
auto in_bits(std::size_t size, F f) {
  switch (size) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

bool is_floating(DType dtype);
Domain domain_of(DType dtype);

// The type that arithmetic between two tensors is done in (torch.promote_types).
DType promote(DType a, DType b);
// Reads `count` elements, `stride` elements apart (0: one element, again and again), converted. T is int64_t,
// float or double.
template <typename T>
void load(DType dtype, const std::uint8_t* from, std::int64_t stride, std::size_t count, T* to);
// The element that lies there, converted.
template <typename T>
T load_one(DType dtype, const std::uint8_t* from) {
  T value{};
  load(dtype, from, 1, 1, &value);
  return value;
}
// Writes `count` elements, `stride` elements apart, converted: floats to integers by truncation, anything to
// bool by comparison with zero.
template <typename T>
void store(DType dtype, const T* from, std::size_t count, std::uint8_t* to, std::int64_t stride);

// The sum of f(i) for i from 0 to `count`, in lanes that processors add at once. Integers wrap around.
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

template <typename T, typename F>
T sum_of_each(const T* values, std::size_t count, F f) {
  return sum_of<T>(count, [&](std::size_t i) { return f(values[i]); });
}

template <typename T>
T sum_of_run(const T* values, std::size_t count) {
  return sum_of_each(values, count, [](T x) { return x; });
}

}  // namespace slipway::lean
