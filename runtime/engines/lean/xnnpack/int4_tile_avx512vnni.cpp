// XNNPACK's kernels put eight neighbours of a column together, so a block of the depth ends with sums in two
// halves, which moves between lanes add: for a block of 32, as many instructions as its multiplications. Here
// it is four: a lane is a column, and a block ends with one conversion and one multiplication. Integers are
// exact, and the rest has XNNPACK's order, so the bits are the same.
#include "lean/xnnpack/byte_tile.h"

#include <immintrin.h>

namespace slipway::lean::avx512vnni {
namespace {

constexpr std::size_t kPanelBytes = kInt4Columns * kInt4Depth;

// Units of the depth one behind the other, with all rows of a unit together: one pointer for all of them. The
// sign is taken from the elements, as the instruction has it for one factor only.
[[gnu::noinline]] void copy_rows_on_avx512vnni(std::size_t rows, const std::int8_t* a, std::size_t stride,
                                               std::size_t depth, std::uint8_t* to) {
  const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
  for (std::size_t k = 0; k < depth; k += kInt4Unit) {
    for (std::size_t row = 0; row < rows; ++row, to += kInt4Unit) {
      const __m256i some = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + row * stride + k));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_xor_si256(some, sign));
    }
  }
}

inline __m512i four(const std::uint8_t* from) {
  std::int32_t bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

template <std::size_t kRows>
void int4_on_avx512vnni(std::size_t columns, std::size_t depth, const std::int8_t* a, std::size_t a_stride,
                        const std::uint8_t* weights, float* c, std::size_t c_stride, const Int4Limits& limits,
                        const ByteRow* quantized) {
  alignas(64) std::uint8_t rows[kInt4RowsBytes];
  copy_rows_on_avx512vnni(kRows, a, a_stride, depth, rows);
  const __m512i high = _mm512_set1_epi8(static_cast<char>(0xf0));
  for (std::size_t begin = 0; begin < columns; begin += kInt4Columns) {
    __m512 totals[kRows];
    const __m512 column_sums = _mm512_loadu_ps(weights);
    weights += sizeof(column_sums);
#pragma GCC unroll 12
    for (std::size_t row = 0; row < kRows; ++row) {
      totals[row] =
          _mm512_mul_ps(column_sums, _mm512_set1_ps(static_cast<float>(quantized[row].zero_point) + 128));
    }
    const std::uint8_t* elements = rows;
    for (std::size_t block = 0; block < depth; block += limits.block) {
      __m512i sums[kRows];
#pragma GCC unroll 12
      for (std::size_t row = 0; row < kRows; ++row) {
        sums[row] = _mm512_setzero_si512();
      }
      for (std::size_t k = 0; k < limits.block; k += kInt4Unit, elements += kRows * kInt4Unit) {
#pragma GCC unroll 1
        for (std::size_t at = 0; at < kInt4Unit; at += 2 * kInt4Depth, weights += kPanelBytes) {
          const __m512i both = _mm512_loadu_si512(weights);
          _mm_prefetch(reinterpret_cast<const char*>(weights + kInt4Ahead<kRows>), _MM_HINT_T0);
          const __m512i first = _mm512_and_si512(_mm512_slli_epi16(both, 4), high);
          const __m512i second = _mm512_and_si512(both, high);
#pragma GCC unroll 12
          for (std::size_t row = 0; row < kRows; ++row) {
            sums[row] = _mm512_dpbusd_epi32(sums[row], four(elements + row * kInt4Unit + at), first);
          }
#pragma GCC unroll 12
          for (std::size_t row = 0; row < kRows; ++row) {
            sums[row] =
                _mm512_dpbusd_epi32(sums[row], four(elements + row * kInt4Unit + at + kInt4Depth), second);
          }
        }
      }
      // bfloat16 is the upper half of float32.
      const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
      const __m512 scales = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
      weights += sizeof(halves);
#pragma GCC unroll 12
      for (std::size_t row = 0; row < kRows; ++row) {
        totals[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[row]), scales, totals[row]);
      }
    }
    const __m512 bias = _mm512_loadu_ps(weights);
    weights += sizeof(bias);
    const std::size_t some = columns - begin;
    const auto mask = static_cast<__mmask16>(some >= kInt4Columns ? 0xffffU : (1U << some) - 1);
#pragma GCC unroll 12
    for (std::size_t row = 0; row < kRows; ++row) {
      __m512 result = _mm512_mul_ps(totals[row], _mm512_set1_ps(quantized[row].scale));
      result = _mm512_max_ps(_mm512_add_ps(result, bias), _mm512_set1_ps(limits.least));
      result = _mm512_min_ps(result, _mm512_set1_ps(limits.greatest));
      _mm512_mask_storeu_ps(reinterpret_cast<std::uint8_t*>(c) + row * c_stride, mask, result);
    }
    c += kInt4Columns;
  }
}

}  // namespace

void int4_gemm_on_avx512vnni(std::size_t rows, std::size_t columns, std::size_t depth, const std::int8_t* a,
                             std::size_t a_stride, const void* weights, float* c, std::size_t c_stride,
                             std::size_t, const Int4Limits* limits, const ByteRow* quantized) {
  constexpr decltype(&int4_on_avx512vnni<1>) kKernels[] = {
      &int4_on_avx512vnni<1>, &int4_on_avx512vnni<2>,  &int4_on_avx512vnni<3>,  &int4_on_avx512vnni<4>,
      &int4_on_avx512vnni<5>, &int4_on_avx512vnni<6>,  &int4_on_avx512vnni<7>,  &int4_on_avx512vnni<8>,
      &int4_on_avx512vnni<9>, &int4_on_avx512vnni<10>, &int4_on_avx512vnni<11>, &int4_on_avx512vnni<12>};
  static_assert(sizeof(kKernels) / sizeof(*kKernels) == kInt4Rows, "one for each number of rows");
  kKernels[rows - 1](columns, depth, a, a_stride, static_cast<const std::uint8_t*>(weights), c, c_stride,
                     *limits, quantized);
}

void int4_gemm_one_on_avx512vnni(std::size_t, std::size_t columns, std::size_t depth, const std::int8_t* a,
                                 std::size_t a_stride, const void* weights, float* c, std::size_t c_stride,
                                 std::size_t, const Int4Limits* limits, const ByteRow* quantized) {
  int4_on_avx512vnni<1>(columns, depth, a, a_stride, static_cast<const std::uint8_t*>(weights), c, c_stride,
                        *limits, quantized);
}

}  // namespace slipway::lean::avx512vnni
