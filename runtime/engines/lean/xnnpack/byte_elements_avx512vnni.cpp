// Sums and products of bytes, element by element: 64 at once. XNNPACK packs every 16 sums by themselves, and
// has vectors of 128 bits for products. The bits are the same.
#include <immintrin.h>

#include "lean/xnnpack/byte_packing_avx512vnni.h"
#include "lean/xnnpack/byte_tile.h"

namespace slipway::lean::avx512vnni {
namespace {

constexpr std::size_t kBytes = 64;
constexpr std::size_t kLanes = 16;

struct Sum {
  explicit Sum(const ByteSum& params)
      : bias(_mm512_set1_epi32(params.bias)),
        a_multiplier(_mm512_set1_epi32(params.a_multiplier)),
        b_multiplier(_mm512_set1_epi32(params.b_multiplier)),
        shift(_mm_cvtsi32_si128(params.shift)) {}
  __m512i of(__m512i a, __m512i b) const {
    const __m512i sum = _mm512_add_epi32(_mm512_mullo_epi32(a, a_multiplier), bias);
    return _mm512_sra_epi32(_mm512_add_epi32(sum, _mm512_mullo_epi32(b, b_multiplier)), shift);
  }
  __m512i bias;
  __m512i a_multiplier;
  __m512i b_multiplier;
  __m128i shift;
};

struct Product {
  explicit Product(const ByteProduct& params)
      : a_zero_point(_mm512_set1_epi32(params.a_zero_point)),
        b_zero_point(_mm512_set1_epi32(params.b_zero_point)),
        scale(_mm512_set1_ps(params.scale)) {}
  __m512i of(__m512i a, __m512i b) const {
    const __m512i product =
        _mm512_mullo_epi32(_mm512_sub_epi32(a, a_zero_point), _mm512_sub_epi32(b, b_zero_point));
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(product), scale));
  }
  __m512i a_zero_point;
  __m512i b_zero_point;
  __m512 scale;
};

inline __m512i wide_on_avx512vnni(const std::int8_t* from) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Behind the last elements, up to fifteen bytes more are read, as by XNNPACK's kernels.
template <typename Operation, typename Params>
void elements_on_avx512vnni(std::size_t count, const std::int8_t* a, const std::int8_t* b, std::int8_t* to,
                            const Params* params) {
  const Operation operation(*params);
  const ElementLimits& limits = params->limits;
  const __m512i zero_point = _mm512_set1_epi16(limits.zero_point);
  const __m512i least = _mm512_set1_epi8(limits.least);
  const __m512i greatest = _mm512_set1_epi8(limits.greatest);
  for (; count >= kBytes; count -= kBytes, a += kBytes, b += kBytes, to += kBytes) {
    __m512i results[4];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      results[i] = operation.of(wide_on_avx512vnni(a + i * kLanes), wide_on_avx512vnni(b + i * kLanes));
    }
    const __m512i bytes = packed_on_avx512vnni(results[0], results[1], results[2], results[3], zero_point);
    _mm512_storeu_si512(to, _mm512_min_epi8(_mm512_max_epi8(bytes, least), greatest));
  }
  for (; count != 0; a += kLanes, b += kLanes, to += kLanes) {
    const __m512i result = operation.of(wide_on_avx512vnni(a), wide_on_avx512vnni(b));
    const __m128i bytes =
        _mm512_cvtsepi32_epi8(_mm512_add_epi32(result, _mm512_set1_epi32(limits.zero_point)));
    const __m128i kept =
        _mm_min_epi8(_mm_max_epi8(bytes, _mm512_castsi512_si128(least)), _mm512_castsi512_si128(greatest));
    if (count < kLanes) {
      std::int8_t all[kLanes];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(all), kept);
      for (std::size_t i = 0; i < count; ++i) {
        to[i] = all[i];
      }
      return;
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), kept);
    count -= kLanes;
  }
}

}  // namespace

void byte_sums_on_avx512vnni(std::size_t count, const std::int8_t* a, const std::int8_t* b, std::int8_t* to,
                             const ByteSum* params) {
  elements_on_avx512vnni<Sum>(count, a, b, to, params);
}

void byte_products_on_avx512vnni(std::size_t count, const std::int8_t* a, const std::int8_t* b,
                                 std::int8_t* to, const ByteProduct* params) {
  elements_on_avx512vnni<Product>(count, a, b, to, params);
}

}  // namespace slipway::lean::avx512vnni
