#include "quantize.h"

#include <algorithm>
#include <cmath>

namespace proof {

namespace {

constexpr float kLeast = -128;
constexpr float kMost = 127;

// Whether every way to round gives the same integer.
bool Clear(float value) {
  const float below = std::floor(value);
  return std::fabs(value - below - 0.5f) > 1.0f / 64;
}

float ZeroPointBeforeRounding(float low, float high, float scale) {
  const float from_low = low * scale, from_high = high * scale;
  const bool low_end_is_nearer = (kLeast + from_low) + (kMost + from_high) > 0;
  const float zero_point = low_end_is_nearer ? kLeast - from_low : kMost - from_high;
  return std::min(std::max(zero_point, kLeast), kMost);
}

struct Range {
  float low = 0, high = 0;
};

// The extremes, zero always among them.
Range RangeOf(const float* row, std::size_t count) {
  Range range;
  for (std::size_t i = 0; i < count; ++i) {
    range.low = std::min(range.low, row[i]);
    range.high = std::max(range.high, row[i]);
  }
  return range;
}

float ScaleOf(const Range& range) {
  return range.low == range.high ? 1.0f : (kMost - kLeast) / (range.high - range.low);
}

}  // namespace

RowQuantization ChooseQuantization(const float* row, std::size_t count) {
  const Range range = RangeOf(row, count);
  const float scale = ScaleOf(range);
  const float zero_point = ZeroPointBeforeRounding(range.low, range.high, scale);
  return {scale, static_cast<int>(std::nearbyint(zero_point))};
}

int Quantize(float value, const RowQuantization& how) {
  const int rounded = static_cast<int>(std::nearbyint(value * how.scale)) + how.zero_point;
  return std::min(std::max(rounded, -128), 127);
}

std::vector<float> QuantizableRow(Random* random, std::size_t count, float low, float high) {
  std::vector<float> row(count);
  for (;;) {
    for (float& value : row) value = random->Uniform(low, high);
    const Range range = RangeOf(row.data(), count);
    const float scale = ScaleOf(range);
    bool clear = Clear(ZeroPointBeforeRounding(range.low, range.high, scale));
    for (float& value : row) {
      const bool extreme = value == range.low || value == range.high;
      if (extreme) {
        clear = clear && Clear(value * scale);
        continue;
      }
      while (!Clear(value * scale)) value = random->Uniform(range.low, range.high);
    }
    if (clear) return row;
  }
}

void PackInt4(const int* weights, std::size_t count, int zero_point, std::vector<std::uint8_t>* packed) {
  for (std::size_t k = 0; k < count; k += 2) {
    const auto even = static_cast<unsigned>(weights[k] + zero_point) & 15u;
    const auto odd = static_cast<unsigned>(weights[k + 1] + zero_point) & 15u;
    packed->push_back(static_cast<std::uint8_t>(even | odd << 4));
  }
}

}  // namespace proof
