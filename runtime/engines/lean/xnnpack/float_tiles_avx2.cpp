#include <immintrin.h>

#include "lean/xnnpack/tile_set.h"

#define ON(name) name##_on_avx2

namespace slipway::lean::avx2 {
namespace {

struct Vector {
  using Type = __m256;
  static constexpr std::size_t kLanes = 8;
  static constexpr std::size_t kRegisters = 16;
  static Type load(const float* from) { return _mm256_load_ps(from); }
  static Type load_any(const float* from) { return _mm256_loadu_ps(from); }
  static Type broadcast(const float* from) { return _mm256_broadcast_ss(from); }
  static Type multiply_add(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
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
  static void prefetch(const float* from) { _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0); }

  static Type load(const Half* from) { return load_any(from); }
  static Type load_any(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  // XNNPACK keeps memory for 16 bytes more behind a row's last channel.
  static Type load_some(const Half* from, std::size_t) { return load_any(from); }
  static void store(Half* to, Type value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
  static void prefetch(const Half*) {}

  // Elements of a row that one transposition takes.
  template <typename Element>
  static constexpr std::size_t kDeep = sizeof(Element) == sizeof(float) ? 8 : 1;

  static void transpose(const Half* from, std::size_t stride, Half* to, std::size_t) {
    for (std::size_t i = 0; i < 8; ++i) {
      to[i] = from[i * stride];
    }
  }

  // That vector of three rows that are interleaved.
  template <std::size_t kPart>
  static Type third(const Type (&rows)[3]) {
    const __m256i from = _mm256_load_si256(reinterpret_cast<const __m256i*>(kThirds + kPart * kLanes));
    const Type some =
        _mm256_blend_ps(_mm256_permutevar8x32_ps(rows[0], from), _mm256_permutevar8x32_ps(rows[1], from),
                        static_cast<int>(lanes_of_third(kLanes, kPart, 1)));
    return _mm256_blend_ps(some, _mm256_permutevar8x32_ps(rows[2], from),
                           static_cast<int>(lanes_of_third(kLanes, kPart, 2)));
  }

  static void transpose(Type (&rows)[8]) {
    Type half[8];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 8; i += 2) {
      half[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      half[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 8; i += 4) {
      rows[i] = _mm256_shuffle_ps(half[i], half[i + 2], 0x44);
      rows[i + 1] = _mm256_shuffle_ps(half[i], half[i + 2], 0xee);
      rows[i + 2] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0x44);
      rows[i + 3] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      half[i] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x20);
      half[i + 4] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      rows[i] = half[i];
    }
  }
};

// Elements of packed weights between what is read and what is fetched ahead.
constexpr std::size_t kAhead = 256;

}  // namespace

#include "lean/xnnpack/float_tile.h"
#include "lean/xnnpack/winograd_transforms.h"

const TileSet kTiles = all_tiles("avx2", 3);
const WinogradKernels kWinograd = {"avx2", &ON(winograd_input), &ON(winograd_output), &ON(winograd_weights)};

}  // namespace slipway::lean::avx2
