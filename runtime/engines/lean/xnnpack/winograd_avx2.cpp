#include <immintrin.h>

#include <cstddef>

#include "lean/xnnpack/winograd_kernels.h"

#define ON(name) winograd_##name##_on_avx2

namespace slipway::lean::avx2 {
namespace {

struct Vector {
  using Type = __m256;
  static constexpr std::size_t kLanes = 8;
  static Type load_any(const float* from) { return _mm256_loadu_ps(from); }
  static Type broadcast(const float* from) { return _mm256_broadcast_ss(from); }
  static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
  static Type subtract(Type a, Type b) { return _mm256_sub_ps(a, b); }
  static Type multiply(Type a, Type b) { return _mm256_mul_ps(a, b); }
  // The operand that is not a number comes second, and stays.
  static Type clamp(Type value, Type least, Type greatest) {
    return _mm256_min_ps(greatest, _mm256_max_ps(least, value));
  }
  static void store(float* to, Type value) { _mm256_storeu_ps(to, value); }
  static void store_some(float* to, Type value, std::size_t count) {
    _mm256_maskstore_ps(to, first(count), value);
  }
  static Type load_some(const float* from, std::size_t count) {
    return _mm256_maskload_ps(from, first(count));
  }
  static __m256i first(std::size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

constexpr float kHalf = 0.5F;

}  // namespace

#include "lean/xnnpack/winograd_transforms.h"

const WinogradKernels kWinograd = {"avx2", &ON(input), &ON(output), &ON(weights)};

}  // namespace slipway::lean::avx2
