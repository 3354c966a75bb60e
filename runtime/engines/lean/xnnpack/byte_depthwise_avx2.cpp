// Pixels are widened to 16 bits, and two of a column are multiplied and added at once.
#include <immintrin.h>

#include "lean/xnnpack/byte_tile.h"

#define INLINE inline __attribute__((always_inline))
#define ON(name) name##_on_avx2

namespace slipway::lean::avx2 {
namespace {

// What all results of a call share.
struct Results {
  __m256 most;  // less the zero point
  __m256i zero_point;
  __m128i least;
};

Results results_of_on_avx2(const ByteLimits& limits) {
  return {_mm256_set1_ps(static_cast<float>(limits.greatest - limits.zero_point)),
          _mm256_set1_epi16(limits.zero_point), _mm_set1_epi8(static_cast<char>(limits.least))};
}

INLINE __m256i vector_on_avx2(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

INLINE __m256i round_on_avx2(__m256i sums, __m256i scales, const Results& results) {
  const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_castsi256_ps(scales));
  return _mm256_cvtps_epi32(_mm256_min_ps(scaled, results.most));
}

template <std::size_t kChannels>
struct Lanes;

// In the order of what interleaves them, which packing undoes.
template <>
struct Lanes<16> {
  static constexpr std::size_t kTogether = 2;
  struct Numbers {
    __m256i low;   // channels 0 to 3 and 8 to 11
    __m256i high;  // channels 4 to 7 and 12 to 15
  };
  using Group = Numbers;

  static Numbers numbers(const std::uint8_t* from) {
    const __m256i first = vector_on_avx2(from);
    const __m256i last = vector_on_avx2(from + sizeof(first));
    return {_mm256_permute2x128_si256(first, last, 0x20), _mm256_permute2x128_si256(first, last, 0x31)};
  }
  static INLINE __m256i words(const void* from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
  template <std::size_t kCount, typename At>
  static INLINE Group group(At at) {
    const __m256i one = words(at(0));
    const __m256i other = kCount == 2 ? words(at(kCount - 1)) : _mm256_setzero_si256();
    return {_mm256_unpacklo_epi16(one, other), _mm256_unpackhi_epi16(one, other)};
  }
  static INLINE Group pixels(const Group& group) { return group; }
  static void begin(const Group&, Numbers*) {}
  static INLINE void add(const Group& pixels, const Group& weights, Numbers* sums) {
    sums->low = _mm256_add_epi32(sums->low, _mm256_madd_epi16(pixels.low, weights.low));
    sums->high = _mm256_add_epi32(sums->high, _mm256_madd_epi16(pixels.high, weights.high));
  }
  static INLINE void end(const Numbers& sums, const Numbers& scales, const Results& results,
                         std::int8_t* to) {
    const __m256i words =
        _mm256_adds_epi16(_mm256_packs_epi32(round_on_avx2(sums.low, scales.low, results),
                                             round_on_avx2(sums.high, scales.high, results)),
                          results.zero_point);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_max_epi8(bytes, results.least));
  }
};

template <>
struct Lanes<8> {
  static constexpr std::size_t kTogether = 2;
  using Numbers = __m256i;
  using Group = __m256i;

  static Numbers numbers(const std::uint8_t* from) { return vector_on_avx2(from); }
  static INLINE __m128i bytes(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
  template <std::size_t kCount, typename At>
  static INLINE Group group(At at) {
    const __m128i other = kCount == 2 ? bytes(at(kCount - 1)) : _mm_setzero_si128();
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes(at(0)), other));
  }
  static INLINE Group pixels(Group group) { return group; }
  static void begin(Group, Numbers*) {}
  static INLINE void add(Group pixels, Group weights, Numbers* sums) {
    *sums = _mm256_add_epi32(*sums, _mm256_madd_epi16(pixels, weights));
  }
  static INLINE void end(Numbers sums, Numbers scales, const Results& results, std::int8_t* to) {
    const __m256i rounded = round_on_avx2(sums, scales, results);
    const __m128i words =
        _mm_adds_epi16(_mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)),
                       _mm256_castsi256_si128(results.zero_point));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     _mm_max_epi8(_mm_packs_epi16(words, words), results.least));
  }
};

constexpr std::size_t kFewChannels = 8;

#include "lean/xnnpack/byte_depthwise.h"

}  // namespace

const ByteDepthwise kByteDepthwise[kByteDepthwiseKernels] = {{9, &byte_depthwise_on_avx2<3>},
                                                             {25, &byte_depthwise_on_avx2<5>}};

}  // namespace slipway::lean::avx2
