#include <immintrin.h>

#include "lean/xnnpack/tile_set.h"

#define ON(name) name##_on_avx512f

namespace slipway::lean::avx512f {
namespace {

struct Vector {
  using Type = __m512;
  static constexpr std::size_t kLanes = 16;
  static constexpr std::size_t kRegisters = 32;
  static Type load(const float* from) { return _mm512_load_ps(from); }
  static Type load_any(const float* from) { return _mm512_loadu_ps(from); }
  static Type broadcast(const float* from) { return _mm512_set1_ps(*from); }
  static Type multiply_add(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static Type subtract(Type a, Type b) { return _mm512_sub_ps(a, b); }
  static Type multiply(Type a, Type b) { return _mm512_mul_ps(a, b); }
  // The operand that is not a number comes second, and stays.
  static Type clamp(Type value, Type least, Type greatest) {
    return _mm512_min_ps(greatest, _mm512_max_ps(least, value));
  }
  static void store(float* to, Type value) { _mm512_storeu_ps(to, value); }
  static void store_some(float* to, Type value, std::size_t count) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << count) - 1), value);
  }
  static Type load_some(const float* from, std::size_t count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), from);
  }
  static void prefetch(const float* from) { _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0); }

  static Type load(const Half* from) { return load_any(from); }
  static Type load_any(const Half* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  // XNNPACK keeps memory for 16 bytes more behind a row's last channel.
  static Type load_some(const Half* from, std::size_t count) {
    const auto* halves = reinterpret_cast<const __m128i*>(from);
    const __m128i last = count > 8 ? _mm_loadu_si128(halves + 1) : _mm_setzero_si128();
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(halves)), last, 1));
  }
  static void store(Half* to, Type value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), to_halves(value));
  }
  static __m256i to_halves(Type value) { return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT); }
  static void prefetch(const Half*) {}

  // Elements of a row that one transposition takes.
  template <typename Element>
  static constexpr std::size_t kDeep = 64 / sizeof(Element);

  // Two neighbours of a row travel as one, and part behind.
  static void transpose(const Half* from, std::size_t stride, Half* to, std::size_t panel) {
    Type rows[16];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      rows[i] = _mm512_loadu_ps(reinterpret_cast<const float*>(from + i * stride));
    }
    transpose(rows);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      const __m512i pair = _mm512_castps_si512(rows[i]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i * panel), _mm512_cvtepi32_epi16(pair));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (2 * i + 1) * panel),
                          _mm512_cvtepi32_epi16(_mm512_srli_epi32(pair, 16)));
    }
  }

  // That vector of three rows that are interleaved.
  template <std::size_t kPart>
  static Type third(const Type (&rows)[3]) {
    const __m512i from = _mm512_load_si512(kThirds + kPart * kLanes);
    const Type first = _mm512_permutexvar_ps(from, rows[0]);
    const Type second = _mm512_mask_permutexvar_ps(
        first, static_cast<__mmask16>(lanes_of_third(kLanes, kPart, 1)), from, rows[1]);
    return _mm512_mask_permutexvar_ps(second, static_cast<__mmask16>(lanes_of_third(kLanes, kPart, 2)), from,
                                      rows[2]);
  }

  static void transpose(Type (&rows)[16]) {
    Type half[16];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 16; i += 2) {
      half[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
      half[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 16; i += 4) {
      rows[i] = _mm512_shuffle_ps(half[i], half[i + 2], 0x44);
      rows[i + 1] = _mm512_shuffle_ps(half[i], half[i + 2], 0xee);
      rows[i + 2] = _mm512_shuffle_ps(half[i + 1], half[i + 3], 0x44);
      rows[i + 3] = _mm512_shuffle_ps(half[i + 1], half[i + 3], 0xee);
    }
    // Now a 4x4 transposition of the quarters.
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      half[i] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0x88);
      half[i + 4] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0xdd);
      half[i + 8] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0x88);
      half[i + 12] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      rows[i] = _mm512_shuffle_f32x4(half[i], half[i + 8], 0x88);
      rows[i + 8] = _mm512_shuffle_f32x4(half[i], half[i + 8], 0xdd);
      rows[i + 4] = _mm512_shuffle_f32x4(half[i + 4], half[i + 12], 0x88);
      rows[i + 12] = _mm512_shuffle_f32x4(half[i + 4], half[i + 12], 0xdd);
    }
  }
};

// Elements of packed weights between what is read and what is fetched ahead.
constexpr std::size_t kAhead = 512;

}  // namespace

#include "lean/xnnpack/float_tile.h"
#include "lean/xnnpack/winograd_transforms.h"

const TileSet kTiles = all_tiles("avx512f", 0);
const WinogradKernels kWinograd = {"avx512f", &ON(winograd_input), &ON(winograd_output),
                                   &ON(winograd_weights)};

}  // namespace slipway::lean::avx512f
