#include "numbers.h"

#include <cmath>
#include <cstring>

namespace proof {

std::uint64_t Random::Bits() {
  std::uint64_t bits = (state_ += 0x9E3779B97F4A7C15u);
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  return bits ^ (bits >> 31);
}

float Random::Uniform(float low, float high) {
  const double share = static_cast<double>(Bits() >> 40) / 16777216.0;
  return static_cast<float>(low + (static_cast<double>(high) - low) * share);
}

int Random::Integer(int low, int high) {
  const auto count = static_cast<std::uint64_t>(high - low + 1);
  return low + static_cast<int>((Bits() >> 32) % count);
}

float RoundToHalf(float value) {
  if (value == 0.0f) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  // 11 significant bits; below 2^-14 the spacing stays 2^-24.
  const int unit = exponent - 11 < -24 ? -24 : exponent - 11;
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(value), -unit)), unit));
}

std::uint16_t ToBfloat16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits += 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

float FromBfloat16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

}  // namespace proof
