#include <immintrin.h>

#include <cstddef>

#include "lean/xnnpack/winograd_kernels.h"

#define ON(name) winograd_##name##_on_avx512f

namespace slipway::lean::avx512f {
namespace {

struct Vector {
  using Type = __m512;
  static constexpr std::size_t kLanes = 16;
  static Type load_any(const float* from) { return _mm512_loadu_ps(from); }
  static Type broadcast(const float* from) { return _mm512_set1_ps(*from); }
  static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static Type subtract(Type a, Type b) { return _mm512_sub_ps(a, b); }
  static Type multiply(Type a, Type b) { return _mm512_mul_ps(a, b); }
  // The operand that is not a number comes second, and stays.
  static Type clamp(Type value, Type least, Type greatest) {
    return _mm512_min_ps(greatest, _mm512_max_ps(least, value));
  }
  static void store(float* to, Type value) { _mm512_storeu_ps(to, value); }
  static void store_some(float* to, Type value, std::size_t count) {
    _mm512_mask_storeu_ps(to, first(count), value);
  }
  static Type load_some(const float* from, std::size_t count) {
    return _mm512_maskz_loadu_ps(first(count), from);
  }
  static __mmask16 first(std::size_t count) { return static_cast<__mmask16>((1U << count) - 1); }
};

constexpr float kHalf = 0.5F;

}  // namespace

#include "lean/xnnpack/winograd_transforms.h"

const WinogradKernels kWinograd = {"avx512f", &ON(input), &ON(output), &ON(weights)};

}  // namespace slipway::lean::avx512f
