// Our kernels for depthwise convolutions in 8 bits: called as XNNPACK calls them, against sums one by one;
// and in layers, against XNNPACK's own kernels, bit for bit.
#include <xnnpack.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include "check.h"
#include "lean/xnnpack/byte_tile.h"
#include "lean/xnnpack/byte_tiles.h"
#include "lean/xnnpack/tile_choice.h"

using namespace slipway::lean;

#if defined(__x86_64__) || defined(_M_X64)
namespace {

std::int32_t some_number(std::size_t at, std::size_t range) {
  return static_cast<std::int32_t>((at * 2654435761U >> 7) % range);
}

std::int8_t some_byte(std::size_t at) {
  return static_cast<std::int8_t>(at % 11 == 0 ? -128 : some_number(at, 256) - 128);
}

// Of a row of windows. `step`: pointers from a window's first to the next one's.
struct RowOfWindows {
  std::size_t channels, width, side, step;

  std::size_t taps() const { return side * side; }
  std::size_t pointers() const { return (width - 1) * step + taps(); }
};

constexpr std::size_t kPixelOffset = 3;  // bytes from where pointers point to a pixel
constexpr std::size_t kMostBehind = 7;   // bytes behind a pixel that may be read
constexpr std::size_t kResultGap = 5;    // bytes between results
constexpr std::int8_t kUntouchedByte = 99;
constexpr ByteLimits kDepthwiseLimits = {4, -100, 110};

bool is_outside_picture(std::size_t pointer) {
  return pointer % 5 == 2;
}

// For `channel`, as XNNPACK packs it: what the sums begin with, each pixel's weight, and the scale.
struct PackedWindows {
  explicit PackedWindows(const RowOfWindows& row) : taps(row.taps()) {
    const std::size_t blocks = (row.channels + kByteChannels - 1) / kByteChannels;
    bytes.resize(blocks * block_bytes());
    for (std::size_t channel = 0; channel < blocks * kByteChannels; ++channel) {
      std::uint8_t* block = bytes.data() + channel / kByteChannels * block_bytes();
      const std::size_t lane = channel % kByteChannels;
      const std::int32_t sum = bias(channel);
      std::memcpy(block + lane * sizeof(sum), &sum, sizeof(sum));
      block += kByteChannels * sizeof(sum);
      for (std::size_t tap = 0; tap < taps; ++tap, block += kByteChannels) {
        block[lane] = static_cast<std::uint8_t>(weight(channel, tap));
      }
      const float factor = scale(channel);
      std::memcpy(block + lane * sizeof(factor), &factor, sizeof(factor));
    }
  }
  std::size_t block_bytes() const { return kByteChannels * (2 * sizeof(float) + taps); }
  std::int32_t bias(std::size_t channel) const { return some_number(channel, 20000) - 10000; }
  std::int8_t weight(std::size_t channel, std::size_t tap) const { return some_byte(channel * 7919 + tap); }
  float scale(std::size_t channel) const {
    return 0.0005F * static_cast<float>(some_number(channel, 50) + 1);
  }

  std::size_t taps;
  std::vector<std::uint8_t> bytes;
};

void check_row_of_windows(const RowOfWindows& row) {
  const PackedWindows packed(row);
  // Each pixel has memory of its own, of just so many bytes: what reads more is seen where memory is checked.
  std::vector<std::unique_ptr<std::int8_t[]>> pixels;
  std::vector<std::int8_t> outside(row.channels + kMostBehind);
  for (std::size_t channel = 0; channel < outside.size(); ++channel) {
    outside[channel] = some_byte(channel + 77);
  }
  std::vector<const std::int8_t*> pointers;
  for (std::size_t i = 0; i < row.pointers(); ++i) {
    pixels.emplace_back(new std::int8_t[kPixelOffset + row.channels + kMostBehind]());
    for (std::size_t channel = 0; channel < row.channels; ++channel) {
      pixels.back()[kPixelOffset + channel] = some_byte(i * 31 + channel);
    }
    pointers.push_back(is_outside_picture(i) ? outside.data() : pixels.back().get());
  }
  std::vector<std::int8_t> results(row.width * (row.channels + kResultGap), kUntouchedByte);
  const ByteDepthwiseKernel kernel = avx2::kByteDepthwise[row.side == 3 ? 0 : 1].kernel;
  kernel(row.channels, row.width, pointers.data(), packed.bytes.data(), results.data(),
         static_cast<std::ptrdiff_t>(row.step * sizeof(void*)), kResultGap, kPixelOffset, outside.data(),
         &kDepthwiseLimits);
  for (std::size_t x = 0; x < row.width; ++x) {
    const std::int8_t* result = results.data() + x * (row.channels + kResultGap);
    CHECK(std::all_of(result + row.channels, result + row.channels + kResultGap,
                      [](std::int8_t one) { return one == kUntouchedByte; }));
    for (std::size_t channel = 0; channel < row.channels; ++channel) {
      std::int32_t sum = packed.bias(channel);
      for (std::size_t tap = 0; tap < row.taps(); ++tap) {
        const std::size_t i = x * row.step + tap;
        const std::int8_t pixel =
            is_outside_picture(i) ? outside[channel] : pixels[i][kPixelOffset + channel];
        sum += pixel * packed.weight(channel, tap);
      }
      const float scaled =
          std::min(static_cast<float>(sum) * packed.scale(channel),
                   static_cast<float>(kDepthwiseLimits.greatest - kDepthwiseLimits.zero_point));
      const auto rounded = static_cast<std::int32_t>(std::nearbyint(std::max(scaled, -1000.0F)));
      CHECK(result[channel] ==
            std::max<std::int32_t>(rounded + kDepthwiseLimits.zero_point, kDepthwiseLimits.least));
    }
  }
}

bool has_kernels() {
  return xnn_initialize(nullptr) == xnn_status_success && xnn_init_hardware_config()->use_x86_avx2 &&
         xnn_init_hardware_config()->use_x86_fma3;
}

struct DepthwiseLayer {
  std::size_t height, width, channels;
  std::uint32_t window_height, window_width, stride, dilation, padding;

  std::size_t pixels(std::size_t size, std::uint32_t window) const {
    return (size + 2 * padding - (dilation * (window - 1) + 1)) / stride + 1;
  }
  std::size_t rows() const { return pixels(height, window_height); }
  std::size_t columns() const { return pixels(width, window_width); }
};

std::vector<std::int8_t> some_bytes(std::size_t count, std::size_t seed) {
  std::vector<std::int8_t> all(count + XNN_EXTRA_BYTES);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = some_byte(i + seed);
  }
  return all;
}

std::vector<std::int8_t> run_depthwise_layer(const DepthwiseLayer& layer, bool ours, std::string* name) {
  xnn_subgraph_t made = nullptr;
  CHECK(xnn_create_subgraph(2, 0, &made) == xnn_status_success);
  const std::unique_ptr<xnn_subgraph, decltype(&xnn_delete_subgraph)> subgraph(made, xnn_delete_subgraph);
  const std::vector<std::int8_t> weights =
      some_bytes(layer.window_height * layer.window_width * layer.channels, 5);
  const std::vector<float> scales(layer.channels, 0.001F);
  const std::vector<std::int32_t> bias(layer.channels, 1234);
  const std::size_t input_dims[] = {2, layer.height, layer.width, layer.channels};
  const std::size_t output_dims[] = {2, layer.rows(), layer.columns(), layer.channels};
  const std::size_t filter_dims[] = {1, layer.window_height, layer.window_width, layer.channels};
  const std::uint32_t none = XNN_INVALID_VALUE_ID;
  std::uint32_t input = 0;
  std::uint32_t output = 0;
  std::uint32_t filter = 0;
  std::uint32_t offset = 0;
  CHECK(xnn_define_quantized_tensor_value(made, xnn_datatype_qint8, -7, 0.5F, 4, input_dims, nullptr, 0,
                                          XNN_VALUE_FLAG_EXTERNAL_INPUT, &input) == xnn_status_success);
  CHECK(xnn_define_quantized_tensor_value(made, xnn_datatype_qint8, 5, 0.25F, 4, output_dims, nullptr, 1,
                                          XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &output) == xnn_status_success);
  CHECK(xnn_define_channelwise_quantized_tensor_value(made, xnn_datatype_qcint8, scales.data(), 4, 3,
                                                      filter_dims, weights.data(), none, 0,
                                                      &filter) == xnn_status_success);
  const std::vector<float> bias_scales(layer.channels, 0.0005F);
  CHECK(xnn_define_channelwise_quantized_tensor_value(made, xnn_datatype_qcint32, bias_scales.data(), 1, 0,
                                                      filter_dims + 3, bias.data(), none, 0,
                                                      &offset) == xnn_status_success);
  CHECK(xnn_define_depthwise_convolution_2d(
            made, layer.padding, layer.padding, layer.padding, layer.padding, layer.window_height,
            layer.window_width, layer.stride, layer.stride, layer.dilation, layer.dilation, 1, layer.channels,
            -25.0F, 25.0F, input, filter, offset, output, 0) == xnn_status_success);
  xnn_runtime_t started = nullptr;
  if (ours) {
    const TileChoice choice(made, nullptr, nullptr);
    CHECK(xnn_create_runtime_v2(made, nullptr, 0, &started) == xnn_status_success);
  } else {
    CHECK(xnn_create_runtime_v2(made, nullptr, 0, &started) == xnn_status_success);
  }
  const std::unique_ptr<xnn_runtime, decltype(&xnn_delete_runtime)> runtime(started, xnn_delete_runtime);
  const xnn_operator& op = *started->opdata[0].operator_objects[0];
  *name = op.ukernel.type == xnn_microkernel_type_dwconv
              ? tile_name(reinterpret_cast<void (*)()>(op.ukernel.dwconv.unipass_fn))
              : "";
  std::vector<std::int8_t> given = some_bytes(2 * layer.height * layer.width * layer.channels, 1);
  std::vector<std::int8_t> results(2 * layer.rows() * layer.columns() * layer.channels + XNN_EXTRA_BYTES);
  const xnn_external_value values[] = {{0, given.data()}, {1, results.data()}};
  CHECK(xnn_reshape_runtime(started) == xnn_status_success);
  CHECK(xnn_setup_runtime_v2(started, 2, values) == xnn_status_success);
  CHECK(xnn_invoke_runtime(started) == xnn_status_success);
  return results;
}

void check_depthwise_layer(const DepthwiseLayer& layer, const std::string& kernel) {
  std::string ours;
  std::string theirs;
  CHECK(run_depthwise_layer(layer, true, &ours) == run_depthwise_layer(layer, false, &theirs));
  CHECK(theirs.empty());
  const bool has_ours = byte_depthwise() != nullptr;
  CHECK(ours == (has_ours && !kernel.empty() ? "slipway_qs8_qc8w_dwconv_" + kernel + "__avx2" : ""));
}

}  // namespace

TEST("depthwise convolutions in 8 bits have exact sums with AVX2, whatever their sizes") {
  if (!has_kernels()) {
    return;
  }
  for (const std::size_t side : {3U, 5U}) {
    for (const std::size_t step : {side, 2 * side, side * side}) {  // of windows side by side, of others
      for (const std::size_t channels : {1U, 7U, 8U, 9U, 15U, 16U, 17U, 24U, 32U, 43U}) {
        for (const std::size_t width : {1U, 2U, 3U, 4U, 5U, 6U, 14U}) {
          check_row_of_windows({channels, width, side, step});
        }
      }
    }
  }
  // More pixels than are found at once.
  check_row_of_windows({20, 400, 3, 3});
  check_row_of_windows({5, 101, 5, 10});
  check_row_of_windows({16, 173, 3, 9});
}

TEST("depthwise layers in 8 bits have XNNPACK's bits") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  check_depthwise_layer({9, 11, 24, 3, 3, 1, 1, 1}, "9p16c");
  check_depthwise_layer({9, 12, 40, 3, 3, 2, 1, 1}, "9p16c");
  check_depthwise_layer({14, 13, 19, 3, 3, 1, 2, 2}, "9p16c");
  check_depthwise_layer({8, 7, 17, 5, 5, 1, 1, 2}, "25p16c");
  check_depthwise_layer({15, 10, 12, 5, 5, 2, 1, 2}, "25p16c");
  check_depthwise_layer({9, 9, 33, 2, 4, 1, 1, 0}, "9p16c");   // eight pixels
  check_depthwise_layer({9, 9, 33, 4, 5, 1, 1, 1}, "25p16c");  // twenty
  check_depthwise_layer({9, 9, 33, 7, 3, 1, 1, 1}, "25p16c");  // twenty-one, in columns of seven
  check_depthwise_layer({9, 9, 33, 2, 2, 1, 1, 0}, "");        // many more would be computed for nothing
  check_depthwise_layer({9, 9, 33, 7, 7, 1, 1, 3}, "");
  check_depthwise_layer({1, 600, 16, 1, 9, 1, 1, 0}, "9p16c");
}
#endif
