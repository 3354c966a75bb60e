// XNNPACK's kernels widen weights and rows to 16 bits before they multiply. Here the instruction for bytes
// multiplies, with the weights as numbers without a sign: 0 to 15 in place of -8 to 7. Products of 32
// neighbours fit into 16 bits then, so one addition is enough for sixteen of them, and what the weights are
// too large by is eight times the sum of a row's elements. A block's sum is exact. XNNPACK keeps four sums in
// float32 for each column, and adds them in the end, so the last bits differ from its own.
#include "lean/xnnpack/byte_tile.h"

#include <immintrin.h>

namespace slipway::lean::avx2 {
namespace {

static_assert(kInt4Unit / 2 * 128 * 15 <= 32767, "a sum of 16 bits has half of a unit's products");
constexpr std::size_t kVectorColumns = 8;
constexpr std::size_t kVectors = kInt4Columns / kVectorColumns;
constexpr std::size_t kPanelBytes = kInt4Columns * kInt4Depth;

// A tile's rows: units of the depth one behind the other, with all rows of a unit together.
struct Int4Rows {
  alignas(64) std::int8_t elements[kInt4RowsBytes];
  std::int32_t above[kInt4RowsBytes / kInt4Unit];  // for each unit of a row, eight times its sum, negative
};

[[gnu::noinline]] void copy_int4_rows_on_avx2(std::size_t rows, const std::int8_t* a, std::size_t stride,
                                              std::size_t depth, Int4Rows* copy) {
  const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
  std::int8_t* to = copy->elements;
  std::int32_t* above = copy->above;
  for (std::size_t k = 0; k < depth; k += kInt4Unit) {
    for (std::size_t row = 0; row < rows; ++row, to += kInt4Unit, ++above) {
      const __m256i some = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + row * stride + k));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), some);
      const __m256i quarters = _mm256_sad_epu8(_mm256_xor_si256(some, sign), _mm256_setzero_si256());
      const __m128i halves =
          _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
      const std::int32_t sum = _mm_cvtsi128_si32(halves) + _mm_extract_epi32(halves, 2);
      *above = -8 * (sum - 128 * static_cast<std::int32_t>(kInt4Unit));
    }
  }
}

inline __m256i four_of_row_on_avx2(const std::int8_t* from) {
  std::int32_t bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return _mm256_set1_epi32(bits);
}

// Adds the products of four neighbours: in each lane of 32 bits, two sums of a column.
template <std::size_t kRows>
inline void add_quads_on_avx2(const __m256i (&weights)[kVectors], const std::int8_t* elements,
                              __m256i (&sums)[kRows][kVectors]) {
#pragma GCC unroll 6
  for (std::size_t row = 0; row < kRows; ++row) {
    const __m256i four = four_of_row_on_avx2(elements + row * kInt4Unit);
    for (std::size_t i = 0; i < kVectors; ++i) {
      sums[row][i] = _mm256_add_epi16(sums[row][i], _mm256_maddubs_epi16(weights[i], four));
    }
  }
}

// Adds a unit's products with the weights as they are.
template <std::size_t kRows>
inline void add_unit_on_avx2(const std::uint8_t* weights, const std::int8_t* elements,
                             const std::int32_t* above, __m256i (&to)[kRows][kVectors]) {
  const __m256i low = _mm256_set1_epi8(0x0f);
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x88));
  __m256i sums[kRows][kVectors];
  for (auto& row : sums) {
    for (__m256i& sum : row) {
      sum = _mm256_setzero_si256();
    }
  }
#pragma GCC unroll 1
  for (std::size_t at = 0; at < kInt4Unit; at += 2 * kInt4Depth, weights += kPanelBytes) {
    __m256i both[kVectors];
    __m256i some[kVectors];
    _mm_prefetch(reinterpret_cast<const char*>(weights + kInt4Ahead<kRows>), _MM_HINT_T0);
    for (std::size_t i = 0; i < kVectors; ++i) {
      const auto* from = reinterpret_cast<const __m256i*>(weights) + i;
      both[i] = _mm256_xor_si256(_mm256_loadu_si256(from), flip);
      some[i] = _mm256_and_si256(both[i], low);
    }
    add_quads_on_avx2<kRows>(some, elements + at, sums);
    for (std::size_t i = 0; i < kVectors; ++i) {
      some[i] = _mm256_and_si256(_mm256_srli_epi16(both[i], 4), low);
    }
    add_quads_on_avx2<kRows>(some, elements + at + kInt4Depth, sums);
  }
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 6
  for (std::size_t row = 0; row < kRows; ++row) {
    const __m256i more = _mm256_set1_epi32(above[row]);
    for (std::size_t i = 0; i < kVectors; ++i) {
      to[row][i] =
          _mm256_add_epi32(to[row][i], _mm256_add_epi32(_mm256_madd_epi16(sums[row][i], ones), more));
    }
  }
}

// What every row begins with: a panel's sums of columns, for the rows' zero points.
[[gnu::noinline]] void begin_totals_on_avx2(std::size_t rows, const std::uint8_t* column_sums,
                                            const ByteRow* quantized, __m256* totals) {
  const auto* from = reinterpret_cast<const float*>(column_sums);
  for (std::size_t row = 0; row < rows; ++row) {
    const __m256 zero_point = _mm256_set1_ps(static_cast<float>(quantized[row].zero_point));
    for (std::size_t i = 0; i < kVectors; ++i, ++totals) {
      *totals = _mm256_mul_ps(_mm256_loadu_ps(from + i * kVectorColumns), zero_point);
    }
  }
}

// A panel's results; so many columns are left, which may be more than it has.
[[gnu::noinline]] void end_totals_on_avx2(std::size_t rows, const std::uint8_t* bias, std::size_t left,
                                          const Int4Limits& limits, const ByteRow* quantized,
                                          const __m256* totals, float* c, std::size_t c_stride) {
  const auto* from = reinterpret_cast<const float*>(bias);
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const auto some = static_cast<int>(left < kInt4Columns ? left : kInt4Columns);
  for (std::size_t row = 0; row < rows; ++row) {
    const __m256 scale = _mm256_set1_ps(quantized[row].scale);
    auto* to = reinterpret_cast<float*>(reinterpret_cast<std::uint8_t*>(c) + row * c_stride);
    for (std::size_t i = 0; i < kVectors; ++i, ++totals, to += kVectorColumns) {
      __m256 result = _mm256_fmadd_ps(*totals, scale, _mm256_loadu_ps(from + i * kVectorColumns));
      result = _mm256_max_ps(result, _mm256_set1_ps(limits.least));
      result = _mm256_min_ps(result, _mm256_set1_ps(limits.greatest));
      const __m256i first = _mm256_set1_epi32(some - static_cast<int>(i * kVectorColumns));
      _mm256_maskstore_ps(to, _mm256_cmpgt_epi32(first, lanes), result);
    }
  }
}

template <std::size_t kRows>
void int4_on_avx2(std::size_t columns, std::size_t depth, const std::int8_t* a, std::size_t a_stride,
                  const std::uint8_t* weights, float* c, std::size_t c_stride, const Int4Limits& limits,
                  const ByteRow* quantized) {
  Int4Rows rows;
  copy_int4_rows_on_avx2(kRows, a, a_stride, depth, &rows);
  for (std::size_t begin = 0; begin < columns; begin += kInt4Columns, c += kInt4Columns) {
    __m256 totals[kRows][kVectors];
    begin_totals_on_avx2(kRows, weights, quantized, &totals[0][0]);
    weights += kInt4Columns * sizeof(float);
    const std::int8_t* elements = rows.elements;
    const std::int32_t* above = rows.above;
    for (std::size_t block = 0; block < depth; block += limits.block) {
      __m256i sums[kRows][kVectors] = {};
      for (std::size_t k = 0; k < limits.block; k += kInt4Unit) {
        add_unit_on_avx2<kRows>(weights, elements, above, sums);
        weights += kInt4Columns * kInt4Unit / 2;
        elements += kRows * kInt4Unit;
        above += kRows;
      }
      __m256 scales[kVectors];
      for (std::size_t i = 0; i < kVectors; ++i, weights += kVectorColumns * sizeof(std::uint16_t)) {
        // bfloat16 is the upper half of float32. XNNPACK's kernels multiply weights of sixteen times the
        // size.
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
        const __m256i words = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
        scales[i] = _mm256_mul_ps(_mm256_castsi256_ps(words), _mm256_set1_ps(16));
      }
      for (std::size_t row = 0; row < kRows; ++row) {
        for (std::size_t i = 0; i < kVectors; ++i) {
          totals[row][i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[row][i]), scales[i], totals[row][i]);
        }
      }
    }
    end_totals_on_avx2(kRows, weights, columns - begin, limits, quantized, &totals[0][0], c, c_stride);
    weights += kInt4Columns * sizeof(float);
  }
}

}  // namespace

void int4_gemm_on_avx2(std::size_t rows, std::size_t columns, std::size_t depth, const std::int8_t* a,
                       std::size_t a_stride, const void* weights, float* c, std::size_t c_stride, std::size_t,
                       const Int4Limits* limits, const ByteRow* quantized) {
  constexpr decltype(&int4_on_avx2<1>) kKernels[] = {&int4_on_avx2<1>, &int4_on_avx2<2>, &int4_on_avx2<3>,
                                                     &int4_on_avx2<4>, &int4_on_avx2<5>, &int4_on_avx2<6>};
  static_assert(sizeof(kKernels) / sizeof(*kKernels) == kInt4RowsInAvx2, "one for each number of rows");
  kKernels[rows - 1](columns, depth, a, a_stride, static_cast<const std::uint8_t*>(weights), c, c_stride,
                     *limits, quantized);
}

void int4_gemm_one_on_avx2(std::size_t, std::size_t columns, std::size_t depth, const std::int8_t* a,
                           std::size_t a_stride, const void* weights, float* c, std::size_t c_stride,
                           std::size_t panel_stride, const Int4Limits* limits, const ByteRow* quantized) {
  int4_gemm_on_avx2(1, columns, depth, a, a_stride, weights, c, c_stride, panel_stride, limits, quantized);
}

}  // namespace slipway::lean::avx2
