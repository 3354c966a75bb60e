// Layers with 4-bit weights that have a scale for each block, with our kernels, against XNNPACK's, bit for
// bit. On processors with AVX2 alone XNNPACK adds in another order: there, scales are such that sums are
// exact in any.
#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include "check.h"
#include "lean/xnnpack/byte_tiles.h"
#include "lean/xnnpack/int4_tile.h"
#include "lean/xnnpack/tile_choice.h"

using namespace slipway::lean;

#if defined(__x86_64__) || defined(_M_X64)
namespace {

struct Int4Layer {
  std::size_t rows, columns, depth, block;
  bool has_bias = true;
};

// The results' bits; `ours`: as the engine makes the layer.
std::vector<std::uint32_t> run_int4_layer(const Int4Layer& layer, pthreadpool_t threads, bool ours) {
  std::uint32_t seed = 1;
  const auto random = [&seed] { return (seed = seed * 1664525U + 1013904223U) >> 16; };
  std::vector<std::uint8_t> weights(layer.columns * layer.depth / 2);
  for (std::uint8_t& two : weights) {
    two = static_cast<std::uint8_t>(random());
  }
  std::vector<std::uint16_t> scales(layer.columns * layer.depth / layer.block);
  for (std::uint16_t& scale : scales) {
    // In bfloat16: from 0.008 to 2; or one of two powers of two.
    const std::uint32_t above = has_only_avx2() ? random() % 2 * 0x80 : random() % 0x400;
    scale = static_cast<std::uint16_t>(0x3c00 + above);
  }
  std::vector<float> bias(layer.columns);
  for (float& one : bias) {
    one = static_cast<float>(random() % 200) - 100.0F;
  }
  std::vector<float> given(layer.rows * layer.depth + XNN_EXTRA_BYTES);
  for (std::size_t i = 0; i < layer.rows * layer.depth; ++i) {
    given[i] = static_cast<float>(random() % 1000) / static_cast<float>(i / layer.depth + 1) - 100.0F;
  }

  xnn_subgraph_t made = nullptr;
  CHECK(xnn_create_subgraph(2, 0, &made) == xnn_status_success);
  const std::unique_ptr<xnn_subgraph, decltype(&xnn_delete_subgraph)> subgraph(made, xnn_delete_subgraph);
  const std::size_t input_dims[] = {layer.rows, layer.depth};
  const std::size_t output_dims[] = {layer.rows, layer.columns};
  const std::size_t filter_dims[] = {layer.columns, layer.depth};
  std::uint32_t input = 0;
  std::uint32_t output = 0;
  std::uint32_t bytes = 0;
  std::uint32_t filter = 0;
  std::uint32_t offset = XNN_INVALID_VALUE_ID;
  CHECK(xnn_define_tensor_value(made, xnn_datatype_fp32, 2, input_dims, nullptr, 0,
                                XNN_VALUE_FLAG_EXTERNAL_INPUT, &input) == xnn_status_success);
  CHECK(xnn_define_tensor_value(made, xnn_datatype_fp32, 2, output_dims, nullptr, 1,
                                XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &output) == xnn_status_success);
  CHECK(xnn_define_dynamically_quantized_tensor_value(made, xnn_datatype_qdint8, 2, 1, input_dims,
                                                      XNN_INVALID_VALUE_ID, 0, &bytes) == xnn_status_success);
  CHECK(xnn_define_unary(made, xnn_unary_convert, nullptr, input, bytes, 0) == xnn_status_success);
  CHECK(xnn_define_blockwise_quantized_tensor_value(made, xnn_datatype_qbint4, 8, scales.data(), 2, 0,
                                                    layer.block, filter_dims, weights.data(),
                                                    XNN_INVALID_VALUE_ID, 0, &filter) == xnn_status_success);
  if (layer.has_bias) {
    CHECK(xnn_define_tensor_value(made, xnn_datatype_fp32, 1, &layer.columns, bias.data(),
                                  XNN_INVALID_VALUE_ID, 0, &offset) == xnn_status_success);
  }
  CHECK(xnn_define_fully_connected(made, -3000.0F, 4000.0F, bytes, filter, offset, output, 0) ==
        xnn_status_success);
  xnn_runtime_t started = nullptr;
  if (ours) {
    const TileChoice choice(made, nullptr, threads);
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
  } else {
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
  }
  const std::unique_ptr<xnn_runtime, decltype(&xnn_delete_runtime)> runtime(started, xnn_delete_runtime);
  std::vector<float> results(layer.rows * layer.columns);
  const xnn_external_value values[] = {{0, given.data()}, {1, results.data()}};
  CHECK(xnn_reshape_runtime(started) == xnn_status_success);
  CHECK(xnn_setup_runtime_v2(started, 2, values) == xnn_status_success);
  CHECK(xnn_invoke_runtime(started) == xnn_status_success);

  const xnn_operator& op = *started->opdata[1].operator_objects[0];
  const std::string name =
      tile_name(reinterpret_cast<void (*)()>(op.context.gemm.gemm.gemm.ukernel.function[0]));
  const bool vnni = xnn_init_hardware_config()->use_x86_avx512vnni;
  const bool can = vnni ? layer.depth <= kInt4RowsBytes / 4 : has_only_avx2();
  const std::string rows = layer.rows == 1 ? "1" : vnni ? "12" : "6";
  const std::string wanted = "slipway_qd8_f32_qb4w_gemm_" + rows + "x16c4__" + (vnni ? "avx512vnni" : "avx2");
  CHECK(name == (ours && can ? wanted : ""));

  std::vector<std::uint32_t> bits(results.size());
  std::memcpy(bits.data(), results.data(), results.size() * sizeof(float));
  return bits;
}

void check_int4_layer(const Int4Layer& layer) {
  const std::unique_ptr<pthreadpool, decltype(&pthreadpool_destroy)> threads(pthreadpool_create(3),
                                                                             pthreadpool_destroy);
  const std::vector<std::uint32_t> expected = run_int4_layer(layer, nullptr, false);
  CHECK(run_int4_layer(layer, nullptr, true) == expected);
  CHECK(run_int4_layer(layer, threads.get(), true) == expected);
}

}  // namespace

TEST("layers with 4-bit weights and a scale for each block have XNNPACK's bits") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  for (std::size_t rows = 1; rows <= kInt4Rows + 1; ++rows) {
    check_int4_layer({rows, 35, 96, 32});
  }
  check_int4_layer({32, 128, 512, 32});  // three tiles
  check_int4_layer({25, 16, 384, 64});   // one panel
  check_int4_layer({2, 1, 64, 64});      // one column
  check_int4_layer({7, 49, 768, 256, false});
  check_int4_layer({9, 20, 7168, 32});    // deep: fewer rows together
  check_int4_layer({5, 17, 11008, 128});  // too deep for twelve rows, and for six
}
#endif
