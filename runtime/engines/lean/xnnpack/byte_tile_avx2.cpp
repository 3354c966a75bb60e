// XNNPACK's kernels widen the rows' bytes anew for every panel of columns, and keep four sums for each row,
// so that three rows fill the registers. Here a tile's rows are widened once, to memory that stays in the
// first cache, and a row has two sums: six rows fit, and weights are widened half as often. Integers are
// exact, and the rest has XNNPACK's order, so the bits are the same.
#include "lean/xnnpack/byte_tile.h"

#include <immintrin.h>

#define ON(name) name##_on_avx2

namespace slipway::lean::avx2 {
namespace {

constexpr std::size_t kMostRows = 6;
constexpr std::size_t kColumns = 8;

using Widened = std::int16_t;

// So much of the depth is computed at once: the rows' part of it stays in the first cache. And so many
// panels, whose sums wait there for the next part.
constexpr std::size_t kPart = 1024;
constexpr std::size_t kPanels = 32;
// Behind each row: widening ends with up to eight elements more, and rows of a power of two would meet in the
// same lines of the cache.
constexpr std::size_t kStride = kPart + 32;
constexpr std::size_t kSums = kMostRows * kColumns;

#include "lean/xnnpack/byte_work.h"

// Where a part of the depth begins.
struct Place {
  std::size_t tap = 0;
  std::size_t at = 0;
};

inline __m128i eight_on_avx2(const std::int8_t* from) {
  return _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

// Reads up to three bytes more, as XNNPACK's kernels do.
inline void widen_on_avx2(const std::int8_t* from, std::size_t count, Widened* to) {
  for (; count >= 16; count -= 16, from += 16, to += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  if (count >= 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), eight_on_avx2(from));
    count -= 8;
    from += 8;
    to += 8;
  }
  for (; count > 0; count -= count < 4 ? count : 4, from += 4, to += 4) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     _mm_cvtepi8_epi16(_mm_cvtsi32_si128(four_at_on_avx2(from))));
  }
}

// The next part of rows whose taps have at most four elements, as pictures have: four taps at once.
std::size_t widen_taps_on_avx2(const ByteWork& work, Place* place, Widened* to) {
  constexpr std::size_t kMost = kPart / kByteTogether;
  const std::size_t left = work.taps - place->tap;
  const std::size_t some = left < kMost ? left : kMost;
  for (std::size_t row = 0; row < work.rows; ++row) {
    Widened* next = to + row * kStride;
    std::size_t tap = place->tap;
    const auto four = [&](std::size_t i) { return four_at_on_avx2(tap_start_on_avx2(work, tap + i, row)); };
    for (; tap + 4 <= place->tap + some; tap += 4, next += 4 * kByteTogether) {
      const __m128i bytes = _mm_setr_epi32(four(0), four(1), four(2), four(3));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(next), _mm256_cvtepi8_epi16(bytes));
    }
    for (; tap < place->tap + some; ++tap, next += kByteTogether) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(next), _mm_cvtepi8_epi16(_mm_cvtsi32_si128(four(0))));
    }
  }
  place->tap += some;
  return some * kByteTogether;
}

// The next part of the depth of all rows. Returns how many elements it has.
std::size_t widen_part_on_avx2(const ByteWork& work, Place* place, Widened* to) {
  const std::size_t padded = work.padded();
  if (padded == kByteTogether) {
    return widen_taps_on_avx2(work, place, to);
  }
  std::size_t filled = 0;
  while (filled < kPart && place->tap < work.taps) {
    const std::size_t some = padded - place->at < kPart - filled ? padded - place->at : kPart - filled;
    const std::size_t real = work.depth - place->at < some ? work.depth - place->at : some;
    for (std::size_t row = 0; row < work.rows; ++row) {
      widen_on_avx2(tap_start_on_avx2(work, place->tap, row) + place->at, real, to + row * kStride + filled);
    }
    filled += some;
    place->at += some;
    if (place->at == padded) {
      *place = {place->tap + 1, 0};
    }
  }
  return filled;
}

// A panel's products with some rows, and what they are added to: for each row `start_step` numbers further.
template <std::size_t kRows>
void multiply_on_avx2(const Widened* rows, std::size_t depth, const std::uint8_t* weights,
                      const std::int32_t* start, std::size_t start_step, std::int32_t* sums) {
  __m256i first[kRows];
  __m256i second[kRows];
#pragma GCC unroll 6
  for (std::size_t row = 0; row < kRows; ++row) {
    first[row] = second[row] = _mm256_setzero_si256();
  }
#pragma GCC unroll 2
  for (std::size_t k = 0; k < depth; k += kByteTogether) {
    const auto* from = reinterpret_cast<const __m128i*>(weights + k * kColumns);
    const __m256i four = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
    const __m256i next = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1));
#pragma GCC unroll 6
    for (std::size_t row = 0; row < kRows; ++row) {
      std::int64_t bits;
      __builtin_memcpy(&bits, rows + row * kStride + k, sizeof(bits));
      const __m256i elements = _mm256_set1_epi64x(bits);
      first[row] = _mm256_add_epi32(first[row], _mm256_madd_epi16(elements, four));
      second[row] = _mm256_add_epi32(second[row], _mm256_madd_epi16(elements, next));
    }
  }
#pragma GCC unroll 6
  for (std::size_t row = 0; row < kRows; ++row) {
    const __m256i both = _mm256_permute4x64_epi64(_mm256_hadd_epi32(first[row], second[row]), 0xd8);
    const auto* before = reinterpret_cast<const __m256i*>(start + row * start_step);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + row * kColumns),
                        _mm256_add_epi32(_mm256_loadu_si256(before), both));
  }
}

using Multiply = void (*)(const Widened* rows, std::size_t depth, const std::uint8_t* weights,
                          const std::int32_t* start, std::size_t start_step, std::int32_t* sums);
constexpr Multiply kMultiply[kMostRows] = {&multiply_on_avx2<1>, &multiply_on_avx2<2>, &multiply_on_avx2<3>,
                                           &multiply_on_avx2<4>, &multiply_on_avx2<5>, &multiply_on_avx2<6>};

// What the sums of a layer with other zero points for every row begin with.
void begin_sums_on_avx2(const ByteWork& work, const std::uint8_t* weights, std::int32_t* sums) {
  const __m256i start = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
  for (std::size_t row = 0; row < work.rows; ++row) {
    const std::int32_t zero_point = work.quantized[row * work.quantized_step].zero_point;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + row * kColumns),
                        _mm256_mullo_epi32(start, _mm256_set1_epi32(zero_point)));
  }
}

void store_bytes_on_avx2(std::uint8_t* to, __m128i bytes, std::size_t count) {
  if (count >= kColumns) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
    return;
  }
  auto rest = static_cast<std::uint64_t>(_mm_cvtsi128_si64(bytes));
  for (; count > 0; --count, ++to, rest >>= 8) {
    *to = static_cast<std::uint8_t>(rest);
  }
}

// A panel's results from its sums. `scales`: what follows its weights.
void end_bytes_on_avx2(const ByteWork& work, const std::uint8_t* scales, const std::int32_t* sums,
                       std::uint8_t* c, std::size_t columns) {
  const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(scales));
  const __m256 most = _mm256_set1_ps(static_cast<float>(work.bytes->greatest - work.bytes->zero_point));
  const __m256i zero_point = _mm256_set1_epi16(work.bytes->zero_point);
  const __m256i least = _mm256_set1_epi8(static_cast<char>(work.bytes->least));
  const auto rounded = [&](std::size_t row) {
    const auto* from = reinterpret_cast<const __m256i*>(sums + row * kColumns);
    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_load_si256(from)), scale);
    return _mm256_cvtps_epi32(_mm256_min_ps(scaled, most));
  };
  // Two rows at once: what is read of a row behind the last one is not stored.
  for (std::size_t row = 0; row < work.rows; row += 2, c += 2 * work.c_stride) {
    const __m256i halves = _mm256_adds_epi16(_mm256_packs_epi32(rounded(row), rounded(row + 1)), zero_point);
    const __m256i words = _mm256_permute4x64_epi64(halves, 0xd8);
    const __m256i bytes = _mm256_max_epi8(_mm256_packs_epi16(words, words), least);
    store_bytes_on_avx2(c, _mm256_castsi256_si128(bytes), columns);
    if (row + 1 < work.rows) {
      store_bytes_on_avx2(c + work.c_stride, _mm256_extracti128_si256(bytes, 1), columns);
    }
  }
}

void end_floats_on_avx2(const ByteWork& work, const std::uint8_t* scales, const std::int32_t* sums,
                        std::uint8_t* c, std::size_t columns) {
  const auto* numbers = reinterpret_cast<const float*>(scales);
  const __m256 scale = _mm256_loadu_ps(numbers);
  const __m256 bias = _mm256_loadu_ps(numbers + kColumns);
  const __m256 least = _mm256_set1_ps(work.floats->least);
  const __m256 most = _mm256_set1_ps(work.floats->greatest);
  const __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(columns)),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  for (std::size_t row = 0; row < work.rows; ++row, sums += kColumns, c += work.c_stride) {
    const __m256 sum = _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums)));
    const __m256 scaled = _mm256_mul_ps(sum, _mm256_set1_ps(work.quantized[row * work.quantized_step].scale));
    const __m256 result = _mm256_min_ps(_mm256_max_ps(_mm256_fmadd_ps(scaled, scale, bias), least), most);
    auto* to = reinterpret_cast<float*>(c);
    if (columns >= kColumns) {
      _mm256_storeu_ps(to, result);
    } else {
      _mm256_maskstore_ps(to, some, result);
    }
  }
}

void compute_on_avx2(const ByteWork& work) {
  alignas(64) Widened rows[kMostRows * kStride];
  alignas(64) std::int32_t sums[kPanels * kSums];
  const Multiply multiply_some = kMultiply[work.rows - 1];
  const std::size_t panel_bytes = work.panel_bytes();
  const std::size_t total = work.taps * work.padded();
  const std::size_t result_bytes = kColumns * (work.bytes != nullptr ? 1 : sizeof(float));
  const std::uint8_t* weights = work.weights;
  std::uint8_t* c = work.c;
  std::size_t filled = 0;
  for (std::size_t begin = 0; begin < work.columns; begin += kPanels * kColumns) {
    const std::size_t left = (work.columns - begin + kColumns - 1) / kColumns;
    const std::size_t panels = left < kPanels ? left : kPanels;
    for (std::size_t panel = 0; work.bytes == nullptr && panel < panels; ++panel) {
      begin_sums_on_avx2(work, weights + panel * panel_bytes, sums + panel * kSums);
    }
    Place place;
    for (std::size_t at = 0; at < total; at += filled) {
      if (begin == 0 || total > kPart) {
        filled = widen_part_on_avx2(work, &place, rows);
      }
      const bool from_weights = work.bytes != nullptr && at == 0;
      const std::uint8_t* some = weights;
      for (std::size_t panel = 0; panel < panels; ++panel, some += panel_bytes) {
        std::int32_t* to = sums + panel * kSums;
        multiply_some(rows, filled, some + kColumns * (sizeof(std::int32_t) + at),
                      from_weights ? reinterpret_cast<const std::int32_t*>(some) : to,
                      from_weights ? 0 : kColumns, to);
      }
    }
    for (std::size_t panel = 0; panel < panels; ++panel, weights += panel_bytes, c += result_bytes) {
      const auto end = work.bytes != nullptr ? &end_bytes_on_avx2 : &end_floats_on_avx2;
      end(work, weights + kColumns * (sizeof(std::int32_t) + total), sums + panel * kSums, c,
          work.columns - begin - panel * kColumns);
    }
  }
}

}  // namespace

const ByteTiles kByteTiles = {"avx2",          kMostRows,          kColumns,  1,
                              ~std::size_t{0}, kTileOf<kMostRows>, kTileOf<1>};

}  // namespace slipway::lean::avx2
