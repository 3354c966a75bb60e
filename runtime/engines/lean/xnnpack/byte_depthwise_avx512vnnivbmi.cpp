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

// Where the bytes of 16 channels, four of each, lie in four pixels one behind the other.
struct Order {
  alignas(64) std::uint8_t places[4 * kByteChannels] = {};
  constexpr Order() {
    for (std::size_t i = 0; i < sizeof(places); ++i) {
      places[i] = static_cast<std::uint8_t>(i % 4 * kByteChannels + i / 4);
    }
  }
};
constexpr Order kOrder;

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
    return _mm512_permutexvar_epi8(_mm512_load_si512(kOrder.places), all);
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

constexpr std::size_t kFewChannels = kByteChannels;  // a vector of eight would not be faster

#include "lean/xnnpack/byte_depthwise.h"

}  // namespace

const ByteDepthwise kByteDepthwise[kByteDepthwiseKernels] = {{9, &byte_depthwise_on_avx512vnnivbmi<3>},
                                                             {25, &byte_depthwise_on_avx512vnnivbmi<5>}};

}  // namespace slipway::lean::avx512vnnivbmi
