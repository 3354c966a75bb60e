#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace proof {

// The same numbers on every machine: splitmix64, with no library's distributions in between.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Bits();
  // Uniform in [low, high), on a grid of 2^-24 of the span.
  float Uniform(float low, float high);
  // Uniform among the integers from low to high, both included.
  int Integer(int low, int high);

 private:
  std::uint64_t state_;
};

// The nearest IEEE half-precision number, ties to even, as float; magnitudes above 65504 are not meant for
// it.
float RoundToHalf(float value);

// The upper half of a float, the nearest of them: bfloat16's bits, and what they stand for.
std::uint16_t ToBfloat16(float value);
float FromBfloat16(std::uint16_t bits);

// Bytes of a buffer that XNNPACK reads: it may read this much past the end (XNN_EXTRA_BYTES is 16 on CPUs).
constexpr std::size_t kReadPastEnd = 64;

// Copies elements to bytes, with room to read past their end.
template <typename T>
std::vector<std::uint8_t> ToBytes(const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(values.data());
  std::vector<std::uint8_t> bytes(first, first + values.size() * sizeof(T));
  bytes.resize(bytes.size() + kReadPastEnd);
  return bytes;
}

}  // namespace proof
