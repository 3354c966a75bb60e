// Our kernels for 4-bit weights, called as XNNPACK calls them, against sums one by one. Scales are powers of
// two, so that float32 has every sum exactly, in any order.
#include <xnnpack.h>
#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"
#include "lean/xnnpack/int4_tile.h"

using namespace slipway::lean;

#if defined(__x86_64__) || defined(_M_X64)
namespace {

constexpr float kUnwritten = 99;

// Numbers of a case: any, or the same extreme ones everywhere.
struct Int4Numbers {
  bool any = true;
  std::int32_t weight = 0;
  std::int32_t element = 0;
};

struct Int4Case {
  std::size_t rows, columns, depth, block;
  Int4Numbers numbers;

  std::int32_t any_of(std::size_t at, std::size_t range) const {
    return static_cast<std::int32_t>((at * 2654435761U >> 9) % range);
  }
  std::int32_t weight(std::size_t column, std::size_t k) const {
    return numbers.any ? any_of(column * 7919 + k, 16) - 8 : numbers.weight;
  }
  std::int32_t element(std::size_t row, std::size_t k) const {
    return numbers.any ? any_of(row * 104729 + k, 256) - 128 : numbers.element;
  }
  // Of sixteen times the size that a kernel reads.
  float scale(std::size_t column, std::size_t at) const {
    return 1.0F / static_cast<float>(1U << any_of(column * 31 + at, 4));
  }
  float bias(std::size_t column) const { return static_cast<float>(any_of(column, 2000)) - 1000; }
  float result(std::size_t row, std::size_t column, const Int4Row& quantized) const {
    float total = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      const std::int32_t product = (element(row, k) - quantized.zero_point) * weight(column, k);
      total += static_cast<float>(product) * scale(column, k / block);
    }
    return total * quantized.scale + bias(column);
  }
};

template <typename Number>
void append_number(std::vector<std::uint8_t>* to, Number number) {
  const std::size_t at = to->size();
  to->resize(at + sizeof(number));
  std::memcpy(to->data() + at, &number, sizeof(number));
}

std::vector<std::uint8_t> packed(const Int4Case& sizes) {
  std::vector<std::uint8_t> all;
  for (std::size_t begin = 0; begin < sizes.columns; begin += kInt4Columns) {
    const auto is_there = [&](std::size_t n) { return begin + n < sizes.columns; };
    const auto int4 = [&](std::size_t n, std::size_t k) {
      return static_cast<std::uint8_t>((is_there(n) ? sizes.weight(begin + n, k) : 0) & 0x0f);
    };
    for (std::size_t n = 0; n < kInt4Columns; ++n) {
      float sum = 0;
      for (std::size_t k = 0; is_there(n) && k < sizes.depth; ++k) {
        sum -= static_cast<float>(sizes.weight(begin + n, k)) * sizes.scale(begin + n, k / sizes.block);
      }
      append_number(&all, sum);
    }
    for (std::size_t block = 0; block < sizes.depth; block += sizes.block) {
      for (std::size_t k = block; k < block + sizes.block; k += 2 * kInt4Depth) {
        for (std::size_t n = 0; n < kInt4Columns; ++n) {
          for (std::size_t i = k; i < k + kInt4Depth; ++i) {
            append_number(&all, static_cast<std::uint8_t>(int4(n, i) | int4(n, i + kInt4Depth) << 4));
          }
        }
      }
      for (std::size_t n = 0; n < kInt4Columns; ++n) {
        const float scale = is_there(n) ? sizes.scale(begin + n, block / sizes.block) / 16 : 0;
        std::uint32_t bits;
        std::memcpy(&bits, &scale, sizeof(bits));
        append_number(&all, static_cast<std::uint16_t>(bits >> 16));
      }
    }
    for (std::size_t n = 0; n < kInt4Columns; ++n) {
      append_number(&all, is_there(n) ? sizes.bias(begin + n) : 0.0F);
    }
  }
  all.resize(all.size() + XNN_EXTRA_BYTES);
  return all;
}

void check_int4(const Int4Case& sizes, Int4Gemm gemm) {
  std::vector<std::int8_t> a(sizes.rows * sizes.depth + XNN_EXTRA_BYTES);
  std::vector<Int4Row> quantized;
  for (std::size_t row = 0; row < sizes.rows; ++row) {
    for (std::size_t k = 0; k < sizes.depth; ++k) {
      a[row * sizes.depth + k] = static_cast<std::int8_t>(sizes.element(row, k));
    }
    quantized.push_back({static_cast<std::int32_t>(row) - 7, row % 2 == 0 ? 0.5F : 0.25F});
  }
  const std::vector<std::uint8_t> weights = packed(sizes);
  const std::size_t stride = sizes.columns + 3;
  std::vector<float> results(sizes.rows * stride, kUnwritten);
  const Int4Limits limits = {-30000, 40000, sizes.block};
  gemm(sizes.rows, sizes.columns, sizes.depth, a.data(), sizes.depth, weights.data(), results.data(),
       stride * sizeof(float), kInt4Columns * sizeof(float), &limits, quantized.data());
  for (std::size_t row = 0; row < sizes.rows; ++row) {
    for (std::size_t column = 0; column < stride; ++column) {
      const float seen = results[row * stride + column];
      if (column >= sizes.columns) {
        CHECK(seen == kUnwritten);
        continue;
      }
      const float exact = sizes.result(row, column, quantized[row]);
      CHECK(seen == std::min(std::max(exact, limits.least), limits.greatest));
    }
  }
}

void check_all(std::size_t most, Int4Gemm many, Int4Gemm one) {
  for (const Int4Numbers& numbers :
       {Int4Numbers{true, 0, 0}, {false, 7, -128}, {false, -8, -128}, {false, -8, 127}, {false, 7, 127}}) {
    for (std::size_t rows = 1; rows <= most; ++rows) {
      for (const std::size_t columns : {1U, 7U, 8U, 9U, 16U, 35U}) {
        check_int4({rows, columns, 32, 32, numbers}, rows == 1 ? one : many);
        check_int4({rows, columns, 96, 32, numbers}, many);
        check_int4({rows, columns, 256, 128, numbers}, many);
      }
    }
    check_int4({most, 20, 2048, 64, numbers}, many);
  }
}

}  // namespace

TEST("layers with 4-bit weights have exact sums, whatever their sizes") {
  if (xnn_initialize(nullptr) != xnn_status_success) {
    return;
  }
  const xnn_hardware_config& hardware = *xnn_init_hardware_config();
  if (hardware.use_x86_avx2 && hardware.use_x86_fma3) {
    check_all(kInt4RowsInAvx2, &avx2::int4_gemm_on_avx2, &avx2::int4_gemm_one_on_avx2);
  }
  if (hardware.use_x86_avx512vnni) {
    check_all(kInt4Rows, &avx512vnni::int4_gemm_on_avx512vnni, &avx512vnni::int4_gemm_one_on_avx512vnni);
  }
}
#endif
