#include <cmath>
#include <cstring>

#include "runner/tune/tune.h"

namespace slipway {
namespace {

// The allowed difference of a type, absolute and relative; docs/deploy.md has the same.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-9;
    case DType::kFloat32:
      return 1e-5;
    case DType::kFloat16:
      return 1e-2;
    case DType::kBFloat16:
      return 2e-2;
    default:
      return 0;
  }
}

double float_value(DType dtype, const std::uint8_t* bytes) {
  std::uint16_t bits = 0;
  float single = 0;
  double wide = 0;
  switch (dtype) {
    case DType::kFloat64:
      std::memcpy(&wide, bytes, sizeof(wide));
      return wide;
    case DType::kFloat32:
      std::memcpy(&single, bytes, sizeof(single));
      return static_cast<double>(single);
    case DType::kBFloat16: {
      std::memcpy(&bits, bytes, sizeof(bits));
      const std::uint32_t word = std::uint32_t{bits} << 16;
      std::memcpy(&single, &word, sizeof(single));
      return static_cast<double>(single);
    }
    default: {  // float16: 1 sign, 5 exponent, 10 mantissa bits
      std::memcpy(&bits, bytes, sizeof(bits));
      const int exponent = (bits >> 10) & 31;
      const int mantissa = bits & 1023;
      double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      if (exponent == 31) {
        size = mantissa == 0 ? INFINITY : NAN;
      }
      return (bits & 0x8000) != 0 ? -size : size;
    }
  }
}

bool tensor_agrees(const Tensor& got, const Tensor& expected) {
  if (got.dtype != expected.dtype || got.shape != expected.shape ||
      got.bytes.size() != expected.bytes.size()) {
    return false;
  }
  const double allowed = tolerance_of(got.dtype);
  if (got.bytes == expected.bytes || allowed == 0) {
    return got.bytes == expected.bytes;
  }
  for (std::size_t at = 0; at < got.bytes.size(); at += size_of(got.dtype)) {
    const double one = float_value(got.dtype, got.bytes.data() + at);
    const double other = float_value(got.dtype, expected.bytes.data() + at);
    const bool same = one == other || (std::isnan(one) && std::isnan(other));
    // Nothing is near an infinity or a NaN.
    if (!same && !(std::isfinite(other) && std::abs(one - other) <= allowed + allowed * std::abs(other))) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool outputs_agree(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  if (got.size() != expected.size()) {
    return false;
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!tensor_agrees(got[i], expected[i])) {
      return false;
    }
  }
  return true;
}

}  // namespace slipway
