// VNNI multiplies bytes without a sign by bytes with one. XNNPACK's kernels take the sign from each element
// of the rows, anew for every panel of columns, and put eight neighbours of a column together, whose sums are
// added at the end. Here it is taken from the weights, two vectors of them for up to twelve rows; an element
// goes from memory into the multiplication, and a lane is a column. 128 times the sum of each row's elements
// is taken off again. Integers are exact, and the rest has XNNPACK's order, so the bits are the same.
#include <immintrin.h>

#include "lean/xnnpack/byte_packing_avx512vnni.h"
#include "lean/xnnpack/byte_tile.h"

#define ON(name) name##_on_avx512vnni

namespace slipway::lean::avx512vnni {
namespace {

constexpr std::size_t kMostRows = 12;
constexpr std::size_t kColumns = 32;
constexpr std::size_t kLanes = 16;
constexpr std::size_t kMostTaps = 25;

#include "lean/xnnpack/byte_work.h"

// What is computed once for all panels of a tile. Rows behind the last one are the last one again.
struct Tile {
  const std::int8_t* places[kMostTaps * kMostRows];  // of each tap's rows
  alignas(64) std::int32_t less[kMostRows + 4];      // for each row, what its sums begin with less
  std::int32_t zero_points[kMostRows];
};

// Neighbouring lanes of both, one from each in turns.
inline __m512i pairs_on_avx512vnni(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

void start_on_avx512vnni(const ByteWork& work, Tile* tile) {
  for (std::size_t tap = 0; tap < work.taps; ++tap) {
    const std::int8_t** to = tile->places + tap * kMostRows;
    for (std::size_t row = 0; row < work.rows; ++row) {
      to[row] = tap_start_on_avx512vnni(work, tap, row);
    }
    for (std::size_t row = work.rows; row < kMostRows; ++row) {
      to[row] = to[work.rows - 1];
    }
  }
  const __m512i ones = _mm512_set1_epi8(1);
  const __mmask64 rest = (std::uint64_t{1} << work.depth % 64) - 1;
  for (std::size_t row = 0; row < work.rows; row += 4) {
    __m512i sums[4] = {};
    for (std::size_t tap = 0; tap < work.taps; ++tap) {
      const std::int8_t* const* from = tile->places + tap * kMostRows + row;
      std::size_t k = 0;
      for (; k + 64 <= work.depth; k += 64) {
#pragma GCC unroll 4
        for (std::size_t i = 0; i < 4; ++i) {
          sums[i] = _mm512_dpbusd_epi32(sums[i], ones, _mm512_loadu_si512(from[i] + k));
        }
      }
      if (rest != 0) {
#pragma GCC unroll 4
        for (std::size_t i = 0; i < 4; ++i) {
          sums[i] = _mm512_dpbusd_epi32(sums[i], ones, _mm512_maskz_loadu_epi8(rest, from[i] + k));
        }
      }
    }
    const __m512i low = pairs_on_avx512vnni(sums[0], sums[2]);
    const __m512i high = pairs_on_avx512vnni(sums[1], sums[3]);
    const __m512i four = pairs_on_avx512vnni(low, high);
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64(four, 1));
    const __m128i all = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(tile->less + row), _mm_slli_epi32(all, 7));
  }
  for (std::size_t row = 0; work.bytes == nullptr && row < kMostRows; ++row) {
    const std::size_t at = row < work.rows ? row : work.rows - 1;
    tile->zero_points[row] = work.quantized[at * work.quantized_step].zero_point;
  }
}

// Results of kSome rows, one row behind the other; of a panel's last columns, and of rows behind the last,
// fewer are stored.
template <std::size_t kSome>
inline void store_rows_on_avx512vnni(const ByteWork& work, std::size_t first, std::uint8_t* c,
                                     std::size_t columns, __m512i bytes) {
  constexpr std::size_t kBytes = sizeof(bytes) / kSome;
  c += first * work.c_stride;
  alignas(64) std::uint8_t all[sizeof(bytes)];
  if (columns >= kBytes && first + kSome <= work.rows) {
    if constexpr (kSome == 2) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(c), _mm512_castsi512_si256(bytes));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(c + work.c_stride), _mm512_extracti64x4_epi64(bytes, 1));
      return;
    }
  }
  _mm512_store_si512(all, bytes);
  const std::size_t count = columns < kBytes ? columns : kBytes;
  for (std::size_t i = 0; i < kSome && first + i < work.rows; ++i, c += work.c_stride) {
    std::size_t n = 0;
    for (; n + 8 <= count; n += 8) {
      __builtin_memcpy(c + n, all + i * kBytes + n, 8);
    }
    for (; n < count; ++n) {
      c[n] = all[i * kBytes + n];
    }
  }
}

// Few rows have few sums, and each waits for its last one: neighbours of the depth have their own.
template <std::size_t kRows>
constexpr std::size_t kApart = kRows == 1  ? 4
                               : kRows < 4 ? 2
                                           : 1;

// One panel, of which kVectors have columns.
template <std::size_t kRows, std::size_t kVectors>
void panel_on_avx512vnni(const ByteWork& work, const Tile& tile, const std::uint8_t* weights, std::uint8_t* c,
                         std::size_t columns) {
  __m512i sums[kApart<kRows>][kRows][kVectors] = {};
#pragma GCC unroll 2
  for (std::size_t v = 0; v < kVectors; ++v) {
    const __m512i begin = _mm512_loadu_si512(weights + v * sizeof(__m512i));
#pragma GCC unroll 12
    for (std::size_t row = 0; row < kRows; ++row) {
      const __m512i start =
          work.bytes != nullptr ? begin : _mm512_mullo_epi32(begin, _mm512_set1_epi32(tile.zero_points[row]));
      sums[0][row][v] = _mm512_sub_epi32(start, _mm512_set1_epi32(tile.less[row]));
    }
  }
  weights += kColumns * sizeof(std::int32_t);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  for (std::size_t tap = 0; tap < work.taps; ++tap) {
    const std::int8_t* rows[kRows];
#pragma GCC unroll 12
    for (std::size_t row = 0; row < kRows; ++row) {
      rows[row] = tile.places[tap * kMostRows + row];
    }
    const auto add = [&](std::size_t k, std::size_t apart, __m512i signs) __attribute__((always_inline)) {
      __m512i some[kVectors];
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        some[v] = _mm512_xor_si512(_mm512_loadu_si512(weights + v * sizeof(__m512i)), signs);
      }
      weights += kColumns * kByteTogether;
#pragma GCC unroll 12
      for (std::size_t row = 0; row < kRows; ++row) {
        const __m512i four = _mm512_set1_epi32(four_at_on_avx512vnni(rows[row] + k));
#pragma GCC unroll 2
        for (std::size_t v = 0; v < kVectors; ++v) {
          sums[apart][row][v] = _mm512_dpbusd_epi32(sums[apart][row][v], some[v], four);
        }
      }
    };
    // Weights behind the last one are zero, and stay so whatever is read of the row.
    const auto signs = [&](std::size_t k) {
      const std::size_t behind = k + kByteTogether <= work.depth ? 0 : k + kByteTogether - work.depth;
      return _mm512_set1_epi32(static_cast<std::int32_t>(0x80808080U >> 8 * behind));
    };
    std::size_t k = 0;
    constexpr std::size_t kStep = kByteTogether * kApart<kRows>;
    for (; k + kStep <= work.depth; k += kStep) {
#pragma GCC unroll 4
      for (std::size_t apart = 0; apart < kApart<kRows>; ++apart) {
        add(k + apart * kByteTogether, apart, sign);
      }
    }
#pragma GCC unroll 1
    for (; k < work.depth; k += kByteTogether) {
      add(k, 0, signs(k));
    }
  }
  __m512 scales[kVectors];
  __m512 biases[kVectors];
#pragma GCC unroll 2
  for (std::size_t v = 0; v < kVectors; ++v) {
    scales[v] = _mm512_loadu_ps(weights + v * sizeof(__m512));
    biases[v] = _mm512_loadu_ps(weights + (work.bytes != nullptr ? 0 : kColumns * sizeof(float)) +
                                v * sizeof(__m512));
  }
#pragma GCC unroll 12
  for (std::size_t row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 3
      for (std::size_t apart = 1; apart < kApart<kRows>; ++apart) {
        sums[0][row][v] = _mm512_add_epi32(sums[0][row][v], sums[apart][row][v]);
      }
    }
  }
  if (work.bytes != nullptr) {
    const ByteLimits& limits = *work.bytes;
    const __m512 most = _mm512_set1_ps(static_cast<float>(limits.greatest - limits.zero_point));
    const __m512i zero_point = _mm512_set1_epi16(limits.zero_point);
    const __m512i least = _mm512_set1_epi8(static_cast<char>(limits.least));
    // As many rows as a vector has bytes for.
    constexpr std::size_t kSome = 4 / kVectors;
#pragma GCC unroll 6
    for (std::size_t first = 0; first < kRows; first += kSome) {
      const auto rounded = [&](std::size_t i) __attribute__((always_inline)) {
        const std::size_t row = first + i / kVectors < kRows ? first + i / kVectors : kRows - 1;
        const __m512 scaled =
            _mm512_mul_ps(_mm512_cvtepi32_ps(sums[0][row][i % kVectors]), scales[i % kVectors]);
        return _mm512_cvtps_epi32(_mm512_min_ps(scaled, most));
      };
      const __m512i packed = packed_on_avx512vnni(rounded(0), rounded(1), rounded(2), rounded(3), zero_point);
      store_rows_on_avx512vnni<kSome>(work, first, c, columns, _mm512_max_epi8(packed, least));
    }
    return;
  }
  const __m512 least = _mm512_set1_ps(work.floats->least);
  const __m512 most = _mm512_set1_ps(work.floats->greatest);
#pragma GCC unroll 2
  for (std::size_t v = 0; v < kVectors; ++v) {
    const std::size_t left = columns - v * kLanes;
    const auto mask = static_cast<__mmask16>(left >= kLanes ? 0xffffU : (1U << left) - 1);
#pragma GCC unroll 12
    for (std::size_t row = 0; row < kRows; ++row) {
      if (row >= work.rows) {
        break;
      }
      const __m512 factor = _mm512_set1_ps(work.quantized[row * work.quantized_step].scale);
      const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[0][row][v]), factor);
      const __m512 result = _mm512_fmadd_ps(scaled, scales[v], biases[v]);
      _mm512_mask_storeu_ps(c + row * work.c_stride + v * sizeof(__m512), mask,
                            _mm512_min_ps(_mm512_max_ps(result, least), most));
    }
  }
}

void compute_on_avx512vnni(const ByteWork& work) {
  Tile tile;
  start_on_avx512vnni(work, &tile);
  const std::size_t panel_bytes = work.panel_bytes();
  const std::uint8_t* weights = work.weights;
  std::uint8_t* c = work.c;
  const auto whole = work.rows == 1   ? &panel_on_avx512vnni<1, 2>
                     : work.rows == 2 ? &panel_on_avx512vnni<2, 2>
                     : work.rows <= 4 ? &panel_on_avx512vnni<4, 2>
                     : work.rows <= 8 ? &panel_on_avx512vnni<8, 2>
                                      : &panel_on_avx512vnni<12, 2>;
  const auto half = work.rows <= 4 ? &panel_on_avx512vnni<4, 1> : &panel_on_avx512vnni<12, 1>;
  for (std::size_t begin = 0; begin < work.columns; begin += kColumns, weights += panel_bytes) {
    const std::size_t left = work.columns - begin;
    (left > kLanes ? whole : half)(work, tile, weights, c, left);
    c += kColumns * (work.bytes != nullptr ? 1 : sizeof(float));
  }
}

}  // namespace

const ByteTiles kByteTiles = {"avx512vnni", kMostRows,          kColumns,  2 * kColumns + 1,
                              kMostTaps,    kTileOf<kMostRows>, kTileOf<1>};

}  // namespace slipway::lean::avx512vnni
