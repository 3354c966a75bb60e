// Our kernels for layers in 8 bits, called as XNNPACK calls them, against sums one by one.
#include <xnnpack.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "lean/xnnpack/byte_tile.h"
#include "lean/xnnpack/byte_tiles.h"
#include "lean/xnnpack/tile_choice.h"

using namespace slipway::lean;

#if defined(__x86_64__) || defined(_M_X64)
namespace {

struct ByteCase {
  std::size_t rows, columns, depth, taps;
};

std::int32_t any_number(std::size_t at, std::size_t range) {
  return static_cast<std::int32_t>((at * 2654435761U >> 7) % range);
}

// A convolution's pixels, weights and pointers: every fifth pixel is outside of the image.
class ByteTrial {
 public:
  static constexpr std::size_t kOffset = 3;
  static constexpr std::int8_t kOutside = 17;
  static constexpr std::int32_t kZero = -9;

  explicit ByteTrial(const ByteCase& sizes) : sizes_(sizes) {
    const std::size_t pixels = sizes.taps * kByteRows;
    image_.resize(kOffset + pixels * sizes.depth + XNN_EXTRA_BYTES);
    for (std::size_t i = 0; i < image_.size(); ++i) {
      image_[i] = static_cast<std::int8_t>(any_number(i, 256) - 128);
    }
    outside_.assign(sizes.depth + XNN_EXTRA_BYTES, kOutside);
    zero_.resize(sizes.depth + XNN_EXTRA_BYTES);
    for (std::size_t i = 0; i < pixels; ++i) {
      pointers_.push_back(sizes.taps > 1 && i % 5 == 2 ? zero_.data() : image_.data() + i * sizes.depth);
    }
  }

  std::int32_t weight(std::size_t column, std::size_t k) const {
    return any_number(column * 7919 + k, 256) - 128;
  }
  float scale(std::size_t column) const { return 0.0001F * static_cast<float>(any_number(column, 50) + 1); }
  std::int32_t bias(std::size_t column) const { return any_number(column, 20000) - 10000; }

  // As XNNPACK packs for these kernels: `dynamic` with the sums of weights in front, and the bias behind.
  std::vector<std::uint8_t> packed(bool dynamic) const {
    std::vector<std::uint8_t> all;
    const auto put = [&](auto number) {
      const std::size_t at = all.size();
      all.resize(at + sizeof(number));
      std::memcpy(all.data() + at, &number, sizeof(number));
    };
    for (std::size_t begin = 0; begin < sizes_.columns; begin += kByteColumns) {
      const auto is_there = [&](std::size_t n) { return begin + n < sizes_.columns; };
      for (std::size_t n = 0; n < kByteColumns; ++n) {
        std::int32_t sum = 0;
        for (std::size_t k = 0; is_there(n) && k < sizes_.taps * sizes_.depth; ++k) {
          sum += weight(begin + n, k);
        }
        put(is_there(n) ? (dynamic ? -sum : bias(begin + n)) : 0);
      }
      for (std::size_t tap = 0; tap < sizes_.taps; ++tap) {
        for (std::size_t k = 0; k < sizes_.depth; k += kByteTogether) {
          for (std::size_t n = 0; n < kByteColumns; ++n) {
            for (std::size_t i = k; i < k + kByteTogether; ++i) {
              const bool real = is_there(n) && i < sizes_.depth;
              put(static_cast<std::int8_t>(real ? weight(begin + n, tap * sizes_.depth + i) : 0));
            }
          }
        }
      }
      for (std::size_t n = 0; n < kByteColumns; ++n) {
        put(scale(begin + n));
      }
      for (std::size_t n = 0; dynamic && n < kByteColumns; ++n) {
        put(static_cast<float>(bias(begin + n)));
      }
    }
    return all;
  }

  std::int32_t pixel(std::size_t row, std::size_t tap, std::size_t k) const {
    const std::int8_t* from = pointers_[tap * kByteRows + row];
    return from == zero_.data() ? kOutside : from[kOffset + k];
  }
  std::int32_t sum(std::size_t row, std::size_t column, std::int32_t zero) const {
    std::int32_t total = 0;
    for (std::size_t tap = 0; tap < sizes_.taps; ++tap) {
      for (std::size_t k = 0; k < sizes_.depth; ++k) {
        total += (pixel(row, tap, k) - zero) * weight(column, tap * sizes_.depth + k);
      }
    }
    return total;
  }

  const std::int8_t** pointers() { return pointers_.data(); }
  const std::int8_t* rows() const { return image_.data() + kOffset; }
  const std::int8_t* zero() const { return zero_.data(); }
  const std::int8_t* outside() const { return outside_.data(); }

 private:
  ByteCase sizes_;
  std::vector<std::int8_t> image_;
  std::vector<std::int8_t> outside_;
  std::vector<std::int8_t> zero_;
  std::vector<const std::int8_t*> pointers_;
};

constexpr std::int16_t kOutputZero = 4;
constexpr std::int16_t kLeastByte = -100;
constexpr std::int16_t kGreatestByte = 110;
constexpr std::int8_t kUntouched = 99;

void check_static(const ByteCase& sizes) {
  ByteTrial trial(sizes);
  const std::vector<std::uint8_t> weights = trial.packed(false);
  const std::size_t stride = sizes.columns + 5;
  std::vector<std::int8_t> results(sizes.rows * stride, kUntouched);
  const ByteLimits limits = {kOutputZero, kLeastByte, kGreatestByte};
  // The zero is read where it is, as it is for layers with one zero point.
  std::vector<std::int8_t> outside(trial.outside(), trial.outside() + sizes.depth + XNN_EXTRA_BYTES);
  if (sizes.taps == 1) {
    avx2::kByteTile.gemm(sizes.rows, sizes.columns, sizes.depth, trial.rows(), sizes.depth, weights.data(),
                         results.data(), stride, 0, &limits);
  } else {
    std::replace(trial.pointers(), trial.pointers() + sizes.taps * kByteRows, trial.zero(),
                 static_cast<const std::int8_t*>(outside.data()));
    avx2::kByteTile.igemm(sizes.rows, sizes.columns, sizes.depth, sizes.taps * kByteRows * sizeof(void*),
                          trial.pointers(), weights.data(), results.data(), stride, 0, ByteTrial::kOffset,
                          outside.data(), &limits);
    std::replace(trial.pointers(), trial.pointers() + sizes.taps * kByteRows,
                 static_cast<const std::int8_t*>(outside.data()), trial.zero());
  }
  for (std::size_t row = 0; row < sizes.rows; ++row) {
    for (std::size_t column = 0; column < stride; ++column) {
      const std::int32_t seen = results[row * stride + column];
      if (column >= sizes.columns) {
        CHECK(seen == kUntouched);
        continue;
      }
      const float exact = static_cast<float>(trial.sum(row, column, 0) + trial.bias(column));
      const float scaled = std::min(exact * trial.scale(column), float{kGreatestByte - kOutputZero});
      const auto rounded = static_cast<std::int32_t>(std::nearbyint(std::max(scaled, -1000.0F)));
      CHECK(seen == std::max<std::int32_t>(rounded + kOutputZero, kLeastByte));
    }
  }
}

void check_dynamic(const ByteCase& sizes) {
  ByteTrial trial(sizes);
  const std::vector<std::uint8_t> weights = trial.packed(true);
  const std::size_t stride = sizes.columns + 3;
  std::vector<float> results(sizes.rows * stride, kUntouched);
  const FloatLimits limits = {-20000, 30000};
  std::vector<ByteRow> quantized;
  for (std::size_t row = 0; row < kByteRows; ++row) {
    quantized.push_back({ByteTrial::kZero + static_cast<std::int32_t>(row), 0.5F + static_cast<float>(row)});
  }
  const bool product = sizes.taps == 1;
  if (product) {
    avx2::kByteTile.dynamic_gemm(sizes.rows, sizes.columns, sizes.depth, trial.rows(), sizes.depth,
                                 weights.data(), results.data(), stride * sizeof(float), 0, &limits,
                                 quantized.data());
  } else {
    avx2::kByteTile.dynamic_igemm(sizes.rows, sizes.columns, sizes.depth,
                                  sizes.taps * kByteRows * sizeof(void*), trial.pointers(), weights.data(),
                                  results.data(), stride * sizeof(float), 0, ByteTrial::kOffset, trial.zero(),
                                  trial.outside(), &limits, quantized.data());
  }
  for (std::size_t row = 0; row < sizes.rows; ++row) {
    const ByteRow& scales = quantized[product ? row : 0];
    for (std::size_t column = 0; column < stride; ++column) {
      const float seen = results[row * stride + column];
      if (column >= sizes.columns) {
        CHECK(seen == kUntouched);
        continue;
      }
      const auto exact = static_cast<float>(trial.sum(row, column, scales.zero_point));
      const float bias = static_cast<float>(trial.bias(column));
      const float result = std::fma(exact * scales.scale, trial.scale(column), bias);
      CHECK(seen == std::min(std::max(result, limits.least), limits.greatest));
    }
  }
}

bool can_run() {
  return xnn_initialize(nullptr) == xnn_status_success && xnn_init_hardware_config()->use_x86_avx2 &&
         xnn_init_hardware_config()->use_x86_fma3;
}

}  // namespace

TEST("layers in 8 bits have exact sums with AVX2, whatever their sizes") {
  if (!can_run()) {
    return;
  }
  for (std::size_t rows = 1; rows <= kByteRows; ++rows) {
    for (const std::size_t taps : {1U, 9U}) {
      for (const std::size_t depth : {1U, 2U, 3U, 4U, 7U, 12U, 16U, 29U, 64U}) {
        for (const std::size_t columns : {1U, 5U, 8U, 19U}) {
          check_static({rows, columns, depth, taps});
          check_dynamic({rows, columns, depth, taps});
        }
      }
    }
  }
  for (const ByteCase& deep : {ByteCase{6, 9, 1024, 1},
                               {5, 8, 1025, 1},
                               {6, 3, 4099, 1},
                               {4, 8, 343, 3},
                               {6, 17, 250, 9},
                               {3, 300, 30, 1},
                               {6, 530, 513, 4},
                               {1, 257, 2048, 2}}) {
    check_static(deep);
    check_dynamic(deep);
  }
}

TEST("a processor with AVX2 alone computes products in 8 bits on our kernels") {
  if (!can_run()) {
    return;
  }
  xnn_subgraph_t made = nullptr;
  CHECK(xnn_create_subgraph(2, 0, &made) == xnn_status_success);
  const std::unique_ptr<xnn_subgraph, decltype(&xnn_delete_subgraph)> subgraph(made, xnn_delete_subgraph);
  const std::size_t dims[] = {7, 16};
  const std::size_t filter_dims[] = {16, 16};
  const std::vector<std::int8_t> weights(16 * 16 + XNN_EXTRA_BYTES, 1);
  const std::vector<float> scales(16, 0.01F);
  std::uint32_t input = 0;
  std::uint32_t output = 0;
  std::uint32_t filter = 0;
  CHECK(xnn_define_quantized_tensor_value(made, xnn_datatype_qint8, 0, 1.0F, 2, dims, nullptr, 0,
                                          XNN_VALUE_FLAG_EXTERNAL_INPUT, &input) == xnn_status_success);
  CHECK(xnn_define_quantized_tensor_value(made, xnn_datatype_qint8, 0, 1.0F, 2, dims, nullptr, 1,
                                          XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &output) == xnn_status_success);
  CHECK(xnn_define_channelwise_quantized_tensor_value(made, xnn_datatype_qcint8, scales.data(), 2, 0,
                                                      filter_dims, weights.data(), XNN_INVALID_VALUE_ID, 0,
                                                      &filter) == xnn_status_success);
  CHECK(xnn_define_fully_connected(made, -100.0F, 100.0F, input, filter, XNN_INVALID_VALUE_ID, output, 0) ==
        xnn_status_success);
  xnn_runtime_t started = nullptr;
  {
    const TileChoice choice(made, nullptr, nullptr);
    CHECK(xnn_create_runtime_v2(made, nullptr, 0, &started) == xnn_status_success);
  }
  const std::unique_ptr<xnn_runtime, decltype(&xnn_delete_runtime)> runtime(started, xnn_delete_runtime);
  CHECK(xnn_reshape_runtime(started) == xnn_status_success);
  const xnn_operator& op = *started->opdata[0].operator_objects[0];
  const std::string name =
      byte_name(reinterpret_cast<void (*)()>(op.context.gemm.gemm.gemm.ukernel.function[0]));
  const xnn_hardware_config& hardware = *xnn_init_hardware_config();
  const bool others = hardware.use_x86_avx256skx || hardware.use_x86_avx512skx || hardware.use_x86_avxvnni;
  CHECK(name == (others ? "" : "slipway_qs8_qc8w_gemm_6x8c4__avx2"));
}
#endif
