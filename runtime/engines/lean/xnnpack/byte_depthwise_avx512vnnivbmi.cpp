// Four pixels of a column are multiplied and added at once, by VNNI, which has a sign for one factor only:
// the pixels' is taken, and the bias makes up for it.
#include <immintrin.h>

#include "lean/xnnpack/byte_tile.h"

#define INLINE inline __attribute__((always_inline))
#define ON(name) name##_on_avx512vnnivbmi

namespace slipway::lean::avx512vnnivbmi {
namespace {

// What all results of a call share.
struct Results {
  __m512 most;  // less the zero point
  __m256i zero_point;
  __m128i least;
};

Results results_of_on_avx512vnnivbmi(const ByteLimits& limits) {
  return {_mm512_set1_ps(static_cast<float>(limits.greatest - limits.zero_point)),
          _mm256_set1_epi16(limits.zero_point), _mm_set1_epi8(static_cast<char>(limits.least))};
}

// Where the bytes of kChannels channels, four of each, lie in four pixels one behind the other.
template <std::size_t kChannels>
struct Order {
  alignas(64) std::uint8_t places[4 * kChannels] = {};
  constexpr Order() {
    for (std::size_t i = 0; i < 4 * kChannels; ++i) {
      places[i] = static_cast<std::uint8_t>(i % 4 * kChannels + i / 4);
    }
  }
};
template <std::size_t kChannels>
constexpr Order<kChannels> kOrder;

template <std::size_t kChannels>
struct Lanes;

template <>
struct Lanes<16> {
  static constexpr std::size_t kTogether = 4;
  using Numbers = __m512i;
  using Group = __m512i;

  static Numbers numbers(const std::uint8_t* from) { return _mm512_loadu_si512(from); }
  static INLINE __m128i bytes(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
  template <std::size_t kCount, typename At>
  static INLINE Group group(At at) {
    if constexpr (kCount == 1) {
      return _mm512_cvtepu8_epi32(bytes(at(0)));
    }
    __m512i all = _mm512_inserti32x4(_mm512_zextsi128_si512(bytes(at(0))), bytes(at(1)), 1);
    if constexpr (kCount > 2) {
      all = _mm512_inserti32x4(all, bytes(at(2)), 2);
    }
    if constexpr (kCount > 3) {
      all = _mm512_inserti32x4(all, bytes(at(3)), 3);
    }
    return _mm512_permutexvar_epi8(_mm512_load_si512(kOrder<16>.places), all);
  }
  static INLINE Group pixels(Group group) {
    return _mm512_xor_si512(group, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  static void begin(Group weights, Numbers* sums) {
    const __m512i half = _mm512_set1_epi8(static_cast<char>(0x80));
    *sums = _mm512_sub_epi32(*sums, _mm512_dpbusd_epi32(_mm512_setzero_si512(), half, weights));
  }
  static INLINE void add(Group pixels, Group weights, Numbers* sums) {
    *sums = _mm512_dpbusd_epi32(*sums, pixels, weights);
  }
  static INLINE void end(Numbers sums, Numbers scales, const Results& results, std::int8_t* to) {
    const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_castsi512_ps(scales));
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_min_ps(scaled, results.most));
    const __m256i words = _mm256_adds_epi16(_mm512_cvtsepi32_epi16(rounded), results.zero_point);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_max_epi8(_mm256_cvtsepi16_epi8(words), results.least));
  }
};

template <>
struct Lanes<8> {
  static constexpr std::size_t kTogether = 4;
  using Numbers = __m256i;
  using Group = __m256i;

  static Numbers numbers(const std::uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static INLINE __m128i bytes(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
  template <std::size_t kCount, typename At>
  static INLINE Group group(At at) {
    if constexpr (kCount == 1) {
      return _mm256_cvtepu8_epi32(bytes(at(0)));
    }
    const __m128i last = kCount > 3 ? bytes(at(kCount - 1)) : _mm_setzero_si128();
    const __m128i more = kCount > 2 ? _mm_unpacklo_epi64(bytes(at(2)), last) : last;
    const __m256i all = _mm256_set_m128i(more, _mm_unpacklo_epi64(bytes(at(0)), bytes(at(1))));
    return _mm256_permutexvar_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(kOrder<8>.places)),
                                   all);
  }
  static INLINE Group pixels(Group group) {
    return _mm256_xor_si256(group, _mm256_set1_epi8(static_cast<char>(0x80)));
  }
  static void begin(Group weights, Numbers* sums) {
    const __m256i half = _mm256_set1_epi8(static_cast<char>(0x80));
    *sums = _mm256_sub_epi32(*sums, _mm256_dpbusd_epi32(_mm256_setzero_si256(), half, weights));
  }
  static INLINE void add(Group pixels, Group weights, Numbers* sums) {
    *sums = _mm256_dpbusd_epi32(*sums, pixels, weights);
  }
  static INLINE void end(Numbers sums, Numbers scales, const Results& results, std::int8_t* to) {
    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_castsi256_ps(scales));
    const __m256i rounded = _mm256_cvtps_epi32(_mm256_min_ps(scaled, _mm512_castps512_ps256(results.most)));
    const __m128i words =
        _mm_adds_epi16(_mm256_cvtsepi32_epi16(rounded), _mm256_castsi256_si128(results.zero_point));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     _mm_max_epi8(_mm_packs_epi16(words, words), results.least));
  }
};

#include "lean/xnnpack/byte_depthwise.h"

}  // namespace

const ByteDepthwise kByteDepthwise[kByteDepthwiseKernels] = {{9, &byte_depthwise_on_avx512vnnivbmi<3>},
                                                             {25, &byte_depthwise_on_avx512vnnivbmi<5>}};

}  // namespace slipway::lean::avx512vnnivbmi
