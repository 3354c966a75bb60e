#include "lean/xnnpack/half_functions.h"

#include <immintrin.h>

#include <cstdint>

#define ON(name) name##_on_avx2

namespace slipway::lean::avx2 {
namespace {

struct Lanes {
  using Type = __m256;
  using Bits = std::uint32_t __attribute__((vector_size(32)));
  static constexpr std::size_t kCount = 8;
  static Type widen(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void narrow(Type x, Half* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static Type root(Type x) { return _mm256_sqrt_ps(x); }
};

}  // namespace

#include "lean/xnnpack/half_function.h"

}  // namespace slipway::lean::avx2
