// Results of 32 bits that become bytes, for the files that are compiled for AVX-512's VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace slipway::lean::avx512vnni {

// Four vectors of them, one behind the other. XNNPACK, too, limits them to 16 bits before the zero point.
static inline __m512i packed_on_avx512vnni(__m512i a, __m512i b, __m512i c, __m512i d, __m512i zero_point) {
  // Packing goes lane by lane.
  alignas(64) constexpr std::int32_t kOrder[] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(a, b), zero_point);
  const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(c, d), zero_point);
  return _mm512_permutexvar_epi32(_mm512_load_si512(kOrder), _mm512_packs_epi16(low, high));
}

}  // namespace slipway::lean::avx512vnni
