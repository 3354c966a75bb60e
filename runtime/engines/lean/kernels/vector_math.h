// Functions of float that compilers turn into loops over vectors: without branches, calls and tables. Those
// that files with an instruction set of their own use, too, are always inlined: no copy is left that others
// might be linked to.
//
// Polynomials fitted to the functions at 400 points with mpmath. Double goes to the C library.
#pragma once

#include <cmath>
#include <cstdint>

namespace slipway::lean {
namespace detail {

[[gnu::always_inline]] inline std::uint32_t word_of(float value) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, &value, sizeof(word));
  return word;
}
[[gnu::always_inline]] inline float float_of(std::uint32_t word) {
  float value = 0;
  __builtin_memcpy(&value, &word, sizeof(value));
  return value;
}
// 2^n for n from -126 to 127.
[[gnu::always_inline]] inline float power_of_two(std::uint32_t n) {
  return float_of((n + 127U) << 23);
}
inline float magnitude_of(float x) {
  return float_of(word_of(x) & 0x7fffffffU);
}
inline float with_sign_of(float magnitude, float x) {
  return float_of((word_of(magnitude) & 0x7fffffffU) | (word_of(x) & 0x80000000U));
}

}  // namespace detail

// A float16's number; also of subnormal ones, infinity and NaN.
[[gnu::always_inline]] inline float half_to_float(std::uint16_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffU;
  const std::uint32_t normal = (magnitude << 13) + (magnitude < 0x7c00U ? 112U << 23 : 224U << 23);
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  return detail::float_of(sign | (magnitude < 0x400U ? detail::word_of(subnormal) : normal));
}
[[gnu::always_inline]] inline float bfloat16_to_float(std::uint16_t bits) {
  return detail::float_of(std::uint32_t{bits} << 16);
}

// e^x; also to the subnormal numbers, to infinity and of NaN.
[[gnu::always_inline]] inline float exp_of(float x) {
  // Behind these the result is 0 or infinite.
  x = x < -104.0F ? -104.0F : x;
  x = x > 89.0F ? 89.0F : x;
  // x = n ln 2 + r. Added to this number, the lowest bits are n.
  constexpr float kRound = 0x1.8p+23F;
  const float shifted = x * 0x1.715476p+0F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  float p = 0x1.6db4dap-10F;
  p = p * r + 0x1.123bep-7F;
  p = p * r + 0x1.55545ep-5F;
  p = p * r + 0x1.55548ep-3F;
  p = p * r + 0x1p-1F;
  p = (p * r) * r + r + 1.0F;
  // In two steps: 2^n itself may be no number, where e^x is one.
  const std::uint32_t whole = detail::word_of(shifted) - detail::word_of(kRound);
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(whole) >> 1);
  return p * detail::power_of_two(half) * detail::power_of_two(whole - half);
}
inline double exp_of(double x) {
  return std::exp(x);
}

inline float tanh_of(float x) {
  const float a = detail::magnitude_of(x);
  const float z = x * x;
  float p = -0x1.72fbb4p-8F;
  p = p * z + 0x1.518afp-6F;
  p = p * z - 0x1.b82656p-5F;
  p = p * z + 0x1.11068ep-3F;
  p = p * z - 0x1.55553p-2F;
  const float inner = x + x * (p * z);
  const float outer = 1.0F - 2.0F / (exp_of(a + a) + 1.0F);
  return detail::with_sign_of(a < 0.625F ? inner : outer, x);  // of -0, too
}
inline double tanh_of(double x) {
  return std::tanh(x);
}

inline float erf_of(float x) {
  const float a = detail::magnitude_of(x);
  const float z = x * x;
  float p = 0x1.4ae4aap-14F;
  p = p * z - 0x1.a485dep-11F;
  p = p * z + 0x1.5419f4p-8F;
  p = p * z - 0x1.b7fbb4p-6F;
  p = p * z + 0x1.ce2d2p-4F;
  p = p * z - 0x1.81273ep-2F;
  p = p * z + 0x1.06eba8p-3F;
  const float inner = x + x * p;
  // 1 - e^q(a), where q is the logarithm of erfc; from 4 on it is 1.
  const float b = a > 4.0F ? 4.0F : a;
  float q = 0x1.8a367ep-13F;
  q = q * b - 0x1.8480b4p-9F;
  q = q * b + 0x1.66eafcp-6F;
  q = q * b - 0x1.a6f042p-4F;
  q = q * b - 0x1.46a35p-1F;
  q = q * b - 0x1.209056p+0F;
  q = q * b - 0x1.479ae4p-12F;
  const float outer = 1.0F - exp_of(q);
  return detail::with_sign_of(a < 1.0F ? inner : outer, x);
}
inline double erf_of(double x) {
  return std::erf(x);
}

template <typename T>
T sigmoid_of(T x) {
  return T(1) / (T(1) + exp_of(-x));
}

}  // namespace slipway::lean
