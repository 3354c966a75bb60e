// Weights that we pack for XNNPACK's own kernels before XNNPACK asks for memory, against XNNPACK's packing of
// the same layer, byte for byte.
#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/common.h>
#include <xnnpack/config.h>

#include <functional>

#include "check.h"
#include "graph_maker.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/tile_choice.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

// A convolution, or where `connected` a fully connected layer over single pixels.
struct OfferedLayer {
  std::size_t channels = 0;
  std::size_t results = 0;
  std::uint32_t window = 1;
  std::uint32_t groups = 1;
  bool connected = false;
  bool with_bias = true;

  std::size_t depth() const { return std::size_t{window} * window * channels; }
  std::size_t all_results() const { return groups * results; }
};

constexpr std::size_t kImage = 5;

// The layer's values: input, weights, bias and output.
using DefineValues = std::function<void(xnn_subgraph_t graph, const OfferedLayer& layer,
                                        const std::size_t* input_dims, const std::size_t* filter_dims,
                                        const std::size_t* output_dims, std::uint32_t (&ids)[4])>;

// XNNPACK's way to the packed weights, with what it asks for.
struct CountingProvider {
  PackedWeights* weights = nullptr;
  std::size_t reserved = 0;  // how often
  std::size_t inserted = 0;
  xnn_weights_cache_provider provider = {};

  explicit CountingProvider(PackedWeights* packed) : weights(packed) {
    provider = *packed->provider();
    provider.context = this;
    provider.look_up = [](void* context, const xnn_weights_cache_look_up_key* key) {
      xnn_weights_cache_t all = self(context)->weights->provider();
      return all->look_up(all->context, key);
    };
    provider.reserve_space = [](void* context, std::size_t bytes) -> void* {
      xnn_weights_cache_t all = self(context)->weights->provider();
      ++self(context)->reserved;
      return all->reserve_space(all->context, bytes);
    };
    provider.look_up_or_insert = [](void* context, const xnn_weights_cache_look_up_key* key, void* data,
                                    std::size_t size) {
      xnn_weights_cache_t all = self(context)->weights->provider();
      return all->look_up_or_insert(all->context, key, data, size);
    };
    provider.offset_to_addr = [](void* context, std::size_t index) -> void* {
      xnn_weights_cache_t all = self(context)->weights->provider();
      return all->offset_to_addr(all->context, index);
    };
  }
  static CountingProvider* self(void* context) { return static_cast<CountingProvider*>(context); }
};

enum class By : std::uint8_t {
  kXnnpack,
  kXnnpackAsChosen,  // with the kernels that the engine chooses
  kEngine,           // XNNPACK must not ask for memory then
};

// The layer's packed weights.
std::vector<std::uint8_t> packed_weights_of(const OfferedLayer& layer, const DefineValues& define,
                                            const void* kernel, pthreadpool_t threads, By by) {
  PackedWeights weights(any_store());
  weights.expect({}, {{kernel, "form"}});
  CountingProvider counting(&weights);
  // What was packed before in this memory must not show through.
  void* before = counting.provider.reserve_space(&counting, std::size_t{32} * 1024);
  CHECK(before != nullptr);
  std::memset(before, 0xa5, std::size_t{32} * 1024);
  counting.reserved = 0;
  xnn_subgraph_t made = nullptr;
  CHECK(xnn_create_subgraph(2, 0, &made) == xnn_status_success);
  const std::unique_ptr<xnn_subgraph, decltype(&xnn_delete_subgraph)> subgraph(made, xnn_delete_subgraph);
  const std::size_t edge = layer.connected ? 1 : kImage;
  const std::size_t input_dims[] = {3, edge, edge, layer.groups * layer.channels};
  const std::size_t output_dims[] = {3, edge - layer.window + 1, edge - layer.window + 1,
                                     layer.all_results()};
  const std::size_t filter_dims[] = {layer.all_results(), layer.window, layer.window, layer.channels};
  const std::size_t connected_dims[] = {layer.results, layer.channels};
  std::uint32_t ids[4] = {};
  define(made, layer, input_dims, layer.connected ? connected_dims : filter_dims, output_dims, ids);
  const std::uint32_t bias = layer.with_bias ? ids[2] : XNN_INVALID_VALUE_ID;
  if (layer.connected) {
    CHECK(xnn_define_fully_connected(made, -25.0F, 25.0F, ids[0], ids[1], bias, ids[3], 0) ==
          xnn_status_success);
  } else {
    CHECK(xnn_define_convolution_2d(made, 0, 0, 0, 0, layer.window, layer.window, 1, 1, 1, 1, layer.groups,
                                    layer.channels, layer.results, -25.0F, 25.0F, ids[0], ids[1], bias,
                                    ids[3], 0) == xnn_status_success);
  }
  xnn_runtime_t started = nullptr;
  const auto start = [&] {
    CHECK(xnn_create_runtime_v4(made, &counting.provider, nullptr, threads, 0, &started) ==
          xnn_status_success);
  };
  const bool ours = by == By::kEngine;
  if (by != By::kXnnpack) {
    const TileChoice choice(made, ours ? &weights : nullptr, threads);
    start();
  } else {
    start();
  }
  CHECK_EQUAL(counting.reserved, ours ? std::size_t{0} : std::size_t{1});
  CHECK_EQUAL(weights.blocks(), std::size_t{1});
  const auto* data = static_cast<const std::uint8_t*>(counting.provider.offset_to_addr(&counting, 0));
  std::vector<std::uint8_t> packed(data, data + weights.size());
  xnn_delete_runtime(started);
  return packed;
}

// XNNPACK may fill columns that are not there with the last one's numbers, where ours are zeros: of panels of
// `panel` columns of numbers of `element` bytes. 0: all bytes are the same.
void check_offered(const OfferedLayer& layer, const DefineValues& define, const void* kernel,
                   std::size_t element = 0, std::size_t panel = 0) {
  const std::unique_ptr<pthreadpool, decltype(&pthreadpool_destroy)> threads(pthreadpool_create(3),
                                                                             pthreadpool_destroy);
  std::vector<std::uint8_t> expected =
      packed_weights_of(layer, define, kernel, nullptr, panel == 0 ? By::kXnnpackAsChosen : By::kXnnpack);
  CHECK(expected.size() >= layer.depth() * layer.all_results());
  const std::size_t panel_bytes = panel * element * (layer.depth() + 1);
  const std::size_t panels = panel == 0 ? 0 : (layer.results + panel - 1) / panel;
  for (std::size_t i = 0; i < layer.groups * panels * panel_bytes; ++i) {
    const std::size_t column = i / panel_bytes % panels * panel + i / element % panel;
    expected[i] = column < layer.results ? expected[i] : 0;
  }
  CHECK(packed_weights_of(layer, define, kernel, nullptr, By::kEngine) == expected);
  CHECK(packed_weights_of(layer, define, kernel, threads.get(), By::kEngine) == expected);
}

// Weights and bias in float32, or as the halves nearest to them.
void check_halves(const OfferedLayer& layer, bool rounded) {
  std::vector<float> numbers(layer.all_results() * (layer.depth() + 1) + XNN_EXTRA_BYTES);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(i * 2654435761U % 20011) / 3000.0F - 3.3F;
  }
  numbers[0] = 70000.0F;  // infinite as a half
  numbers[1] = 3e-7F;     // and a very small one
  numbers[2] = -1.0F / 3;
  std::vector<std::uint16_t> halves(numbers.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i * 40503U % 0x7c00);  // finite ones
  }
  const xnn_datatype type = rounded ? xnn_datatype_fp32 : xnn_datatype_fp16;
  const void* kernel = rounded ? static_cast<const void*>(numbers.data()) : halves.data();
  const std::size_t before = layer.all_results() * layer.depth();
  const void* offsets = rounded ? static_cast<const void*>(numbers.data() + before) : halves.data() + before;
  const DefineValues define = [&](xnn_subgraph_t graph, const OfferedLayer& one,
                                  const std::size_t* input_dims, const std::size_t* filter_dims,
                                  const std::size_t* output_dims, std::uint32_t (&ids)[4]) {
    const std::size_t results = one.all_results();
    CHECK(xnn_define_tensor_value(graph, xnn_datatype_fp16, 4, input_dims, nullptr, 0,
                                  XNN_VALUE_FLAG_EXTERNAL_INPUT, &ids[0]) == xnn_status_success);
    CHECK(xnn_define_tensor_value(graph, type, one.connected ? 2 : 4, filter_dims, kernel,
                                  XNN_INVALID_VALUE_ID, 0, &ids[1]) == xnn_status_success);
    CHECK(xnn_define_tensor_value(graph, type, 1, &results, offsets, XNN_INVALID_VALUE_ID, 0, &ids[2]) ==
          xnn_status_success);
    CHECK(xnn_define_tensor_value(graph, xnn_datatype_fp16, 4, output_dims, nullptr, 1,
                                  XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &ids[3]) == xnn_status_success);
  };
  check_offered(layer, define, kernel, sizeof(std::uint16_t), xnn_init_f16_gemm_config()->nr);
}

// `dynamic`: the input is quantized at run time, and the results are in float32.
void check_offered_bytes(const OfferedLayer& layer, bool dynamic) {
  const std::size_t results = layer.all_results();
  std::vector<std::int8_t> kernel(results * layer.depth() + XNN_EXTRA_BYTES);
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    kernel[i] = static_cast<std::int8_t>(static_cast<int>(i * 2654435761U >> 13 & 0xff) - 128);
  }
  std::vector<float> scales(results);
  std::vector<float> bias_scales(results, 0.0005F);
  std::vector<std::int32_t> bias(results);
  std::vector<float> float_bias(results);
  for (std::size_t i = 0; i < results; ++i) {
    scales[i] = 0.001F + static_cast<float>(i % 17) / 3000;
    bias[i] = static_cast<std::int32_t>(i * 37 % 1000) - 500;
    float_bias[i] = static_cast<float>(bias[i]) / 7;
  }
  const DefineValues define = [&](xnn_subgraph_t graph, const OfferedLayer& one,
                                  const std::size_t* input_dims, const std::size_t* filter_dims,
                                  const std::size_t* output_dims, std::uint32_t (&ids)[4]) {
    const std::size_t rank = one.connected ? 2 : 4;
    CHECK(xnn_define_channelwise_quantized_tensor_value(graph, xnn_datatype_qcint8, scales.data(), rank, 0,
                                                        filter_dims, kernel.data(), XNN_INVALID_VALUE_ID, 0,
                                                        &ids[1]) == xnn_status_success);
    if (dynamic) {
      std::uint32_t input = 0;
      CHECK(xnn_define_tensor_value(graph, xnn_datatype_fp32, 4, input_dims, nullptr, 0,
                                    XNN_VALUE_FLAG_EXTERNAL_INPUT, &input) == xnn_status_success);
      CHECK(xnn_define_dynamically_quantized_tensor_value(
                graph, xnn_datatype_qdint8, 4, one.connected ? 1 : 3, input_dims, XNN_INVALID_VALUE_ID, 0,
                &ids[0]) == xnn_status_success);
      CHECK(xnn_define_unary(graph, xnn_unary_convert, nullptr, input, ids[0], 0) == xnn_status_success);
      CHECK(xnn_define_tensor_value(graph, xnn_datatype_fp32, 1, &results, float_bias.data(),
                                    XNN_INVALID_VALUE_ID, 0, &ids[2]) == xnn_status_success);
      CHECK(xnn_define_tensor_value(graph, xnn_datatype_fp32, 4, output_dims, nullptr, 1,
                                    XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &ids[3]) == xnn_status_success);
      return;
    }
    CHECK(xnn_define_quantized_tensor_value(graph, xnn_datatype_qint8, -7, 0.3F, 4, input_dims, nullptr, 0,
                                            XNN_VALUE_FLAG_EXTERNAL_INPUT, &ids[0]) == xnn_status_success);
    CHECK(xnn_define_channelwise_quantized_tensor_value(graph, xnn_datatype_qcint32, bias_scales.data(), 1, 0,
                                                        &results, bias.data(), XNN_INVALID_VALUE_ID, 0,
                                                        &ids[2]) == xnn_status_success);
    CHECK(xnn_define_quantized_tensor_value(graph, xnn_datatype_qint8, 5, 0.7F, 4, output_dims, nullptr, 1,
                                            XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &ids[3]) == xnn_status_success);
  };
  check_offered(layer, define, kernel.data());
}

}  // namespace

TEST("weights in float16 are packed as XNNPACK packs them for its own kernels") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  // With kernels of ours the order is another; without AVX-512's float16 arithmetic these compute.
  for (const bool rounded : {false, true}) {
    for (const OfferedLayer& layer :
         {OfferedLayer{67, 130}, OfferedLayer{64, 64, 3}, OfferedLayer{5, 70, 2, 3},
          OfferedLayer{67, 130, 1, 1, true}, OfferedLayer{96, 128, 1, 1, true, false},
          OfferedLayer{33, 20, 3, 1, false, false}}) {
      // Of convolutions XNNPACK takes weights in float32 alone.
      if ((rounded || layer.connected) && float_tiles() != nullptr && half_tiles() == nullptr) {
        check_halves(layer, rounded);
      }
    }
  }
  xnn_deinitialize();
}

TEST("weights in 8 bits are packed as XNNPACK packs them, scales included, without a look at the memory") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  for (const bool dynamic : {false, true}) {
    for (const OfferedLayer& layer :
         {OfferedLayer{67, 130}, OfferedLayer{64, 64, 3}, OfferedLayer{5, 70, 2, 3}, OfferedLayer{300, 1100},
          OfferedLayer{33, 20, 3, 1, false, false}, OfferedLayer{128, 640, 2, 2},
          OfferedLayer{67, 130, 1, 1, true}, OfferedLayer{96, 128, 1, 1, true, false}}) {
      // Where XNNPACK packs weights and biases by one function for all, it packs them itself.
      const xnn_gemm_config* table =
          dynamic ? xnn_init_qd8_f32_qc8w_gemm_config() : xnn_init_qs8_qc8w_gemm_config();
      if (!layer.connected || table->pack_weights_and_biases == nullptr) {
        check_offered_bytes(layer, dynamic);
      }
    }
  }
  xnn_deinitialize();
}

TEST("what packed weights leave of their last line is zero") {
  PackedWeights weights(any_store());
  const std::uint8_t kernel = 0;
  weights.expect({}, {{&kernel, "form"}});
  xnn_weights_cache_t provider = weights.provider();
  constexpr std::size_t kLine = XNN_ALLOCATION_ALIGNMENT;
  std::memset(provider->reserve_space(provider->context, kLine), 0xa5, kLine);
  constexpr std::size_t kSize = 10;
  weights.offer({&kernel, nullptr, kSize, [](std::uint8_t* to) { std::memset(to, 1, kSize); }});
  const xnn_weights_cache_look_up_key key = {5, &kernel, nullptr};
  const std::size_t index = provider->look_up(provider->context, &key);
  CHECK_EQUAL(weights.size(), kLine);
  const auto* data = static_cast<const std::uint8_t*>(provider->offset_to_addr(provider->context, index));
  for (std::size_t i = 0; i < kLine; ++i) {
    CHECK_EQUAL(static_cast<int>(data[i]), i < kSize ? 1 : 0);
  }
}
