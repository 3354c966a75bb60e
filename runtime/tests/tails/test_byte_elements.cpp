// Our sums and products of bytes, of every length that their vectors leave over.
#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "check.h"
#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {
namespace {

std::int8_t limited(std::int64_t value, const ElementLimits& limits) {
  return static_cast<std::int8_t>(
      std::clamp<std::int64_t>(value + limits.zero_point, limits.least, limits.greatest));
}

std::int64_t expected(const ByteSum& params, std::int64_t a, std::int64_t b) {
  return (params.bias + a * params.a_multiplier + b * params.b_multiplier) >> params.shift;
}

std::int64_t expected(const ByteProduct& params, std::int64_t a, std::int64_t b) {
  const auto product = static_cast<float>((a - params.a_zero_point) * (b - params.b_zero_point));
  return std::llrint(product * params.scale);
}

template <typename Params, typename Kernel>
void check_elements(Kernel kernel, const Params& params) {
  std::mt19937 random(7);
  for (std::size_t count = 1; count <= 200; ++count) {
    std::vector<std::int8_t> a(count + 16);
    std::vector<std::int8_t> b(count + 16);
    std::vector<std::int8_t> right(count + 16, 0x55);
    std::vector<std::int8_t> found = right;
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<std::int8_t>(random());
      b[i] = static_cast<std::int8_t>(i % 3 == 0 ? -128 : random());
    }
    for (std::size_t i = 0; i < count; ++i) {
      right[i] = limited(expected(params, a[i], b[i]), params.limits);
    }
    kernel(count, a.data(), b.data(), found.data(), &params);
    CHECK(found == right);
  }
}

TEST("sums and products of bytes leave no tail out") {
#if defined(__x86_64__)
  if (!xnn_init_hardware_config()->use_x86_avx512vnni) {
    return;
  }
  for (const ElementLimits limits :
       {ElementLimits{0, -128, 127}, ElementLimits{-128, -128, 0}, ElementLimits{127, -5, 90}}) {
    for (const int shift : {13, 20, 30}) {
      check_elements(&avx512vnni::byte_sums_on_avx512vnni,
                     ByteSum{{}, (1 << (shift - 1)) - 77777, 1 << 20, -1234567, shift, limits});
    }
    for (const float scale : {0.004F, 0.37F, 200.0F}) {
      check_elements(&avx512vnni::byte_products_on_avx512vnni, ByteProduct{-128, 17, scale, limits});
    }
  }
#endif
}

}  // namespace
}  // namespace slipway::lean
