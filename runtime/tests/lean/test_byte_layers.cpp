// Layers in 8 bits, by im2col and with kernels that XNNPACK would not choose, against XNNPACK's
// own choice, bit for bit.
#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <optional>

#include "check.h"
#include "lean/xnnpack/blocking.h"
#include "lean/xnnpack/im2col.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/tile_choice.h"
#include "lean/xnnpack/vector_kernels.h"

using namespace slipway::lean;

#if defined(__x86_64__) || defined(_M_X64)
namespace {

using Runtime = std::unique_ptr<xnn_runtime, decltype(&xnn_delete_runtime)>;
using Subgraph = std::unique_ptr<xnn_subgraph, decltype(&xnn_delete_subgraph)>;

struct Layer {
  std::size_t batch, height, width, channels, results;
  std::uint32_t window_height, window_width, down, across;
  std::uint32_t top, right, bottom, left;

  std::size_t rows() const { return (height + top + bottom - window_height) / down + 1; }
  std::size_t columns() const { return (width + left + right - window_width) / across + 1; }
};

std::vector<std::int8_t> any_bytes(std::size_t count, std::uint32_t seed) {
  std::vector<std::int8_t> all(count + XNN_EXTRA_BYTES);
  for (std::int8_t& one : all) {
    seed = seed * 1664525U + 1013904223U;
    one = static_cast<std::int8_t>(seed >> 24);
  }
  return all;
}

constexpr std::int32_t kInputZero = -7;

// The layer's results; `ours`: as the engine makes it, which must be by im2col then, where `im2col`.
std::vector<std::int8_t> run_byte_layer(const Layer& layer, pthreadpool_t threads, bool ours,
                                        bool im2col = true) {
  xnn_subgraph_t made = nullptr;
  CHECK(xnn_create_subgraph(2, 0, &made) == xnn_status_success);
  const Subgraph subgraph(made, xnn_delete_subgraph);
  const std::size_t window = layer.window_height * layer.window_width * layer.channels;
  const std::vector<std::int8_t> weights = any_bytes(layer.results * window, 3);
  const std::vector<float> scales(layer.results, 0.001F);
  const std::vector<float> bias_scales(layer.results, 0.0005F);
  std::vector<std::int32_t> bias(layer.results);
  for (std::size_t i = 0; i < bias.size(); ++i) {
    bias[i] = static_cast<std::int32_t>(i * 37 % 1000) - 500;
  }
  const std::size_t input_dims[] = {layer.batch, layer.height, layer.width, layer.channels};
  const std::size_t output_dims[] = {layer.batch, layer.rows(), layer.columns(), layer.results};
  const std::size_t filter_dims[] = {layer.results, layer.window_height, layer.window_width, layer.channels};
  std::uint32_t input = 0;
  std::uint32_t output = 0;
  std::uint32_t filter = 0;
  std::uint32_t offset = 0;
  CHECK(xnn_define_quantized_tensor_value(made, xnn_datatype_qint8, kInputZero, 0.5F, 4, input_dims, nullptr,
                                          0, XNN_VALUE_FLAG_EXTERNAL_INPUT, &input) == xnn_status_success);
  CHECK(xnn_define_quantized_tensor_value(made, xnn_datatype_qint8, 5, 0.25F, 4, output_dims, nullptr, 1,
                                          XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &output) == xnn_status_success);
  CHECK(xnn_define_channelwise_quantized_tensor_value(made, xnn_datatype_qcint8, scales.data(), 4, 0,
                                                      filter_dims, weights.data(), XNN_INVALID_VALUE_ID, 0,
                                                      &filter) == xnn_status_success);
  CHECK(xnn_define_channelwise_quantized_tensor_value(made, xnn_datatype_qcint32, bias_scales.data(), 1, 0,
                                                      filter_dims, bias.data(), XNN_INVALID_VALUE_ID, 0,
                                                      &offset) == xnn_status_success);
  CHECK(xnn_define_convolution_2d(made, layer.top, layer.right, layer.bottom, layer.left, layer.window_height,
                                  layer.window_width, layer.down, layer.across, 1, 1, 1, layer.channels,
                                  layer.results, -25.0F, 25.0F, input, filter, offset, output,
                                  0) == xnn_status_success);
  xnn_runtime_t started = nullptr;
  if (ours) {
    const TileChoice choice(made, nullptr, threads);
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
    hook_im2col(started, *made);
  } else {
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
  }
  const Runtime runtime(started, xnn_delete_runtime);
  const xnn_operator& op = *started->opdata[0].operator_objects[0];
  CHECK((op.ukernel.type == xnn_microkernel_type_gemm) ==
        ((ours && im2col) || layer.window_height * layer.window_width == 1));
  const std::optional<double> vectors = time_by_vectors(made->nodes[0], made->values);
  if (ours && !im2col && vectors) {
    const bool gemm = op.ukernel.type == xnn_microkernel_type_gemm;
    CHECK((gemm ? op.ukernel.gemm.nr : op.ukernel.igemm.nr) == (*vectors < 1 ? 16U : 64U));
  }
  const std::vector<std::int8_t> pixels =
      any_bytes(layer.batch * layer.height * layer.width * layer.channels, 1);
  std::vector<std::int8_t> results(layer.batch * layer.rows() * layer.columns() * layer.results);
  std::vector<std::int8_t> given = pixels;
  const xnn_external_value values[] = {{0, given.data()}, {1, results.data()}};
  CHECK(xnn_reshape_runtime(started) == xnn_status_success);
  if (ours && !im2col && layer.window_height * layer.window_width == 1) {
    const auto kernel = reinterpret_cast<void (*)()>(op.context.gemm.gemm.gemm.ukernel.function[0]);
    CHECK(tile_name(kernel) == std::string(has_only_avx2() ? "slipway_qs8_qc8w_gemm_6x8c4__avx2" : ""));
  }
  if (ours) {
    const auto task = op.compute[0].task_2d_tile_2d;
    const std::size_t rows = op.compute[0].tile[0];
    const std::size_t columns = op.compute[0].tile[1];
    set_blocks(started, threads == nullptr ? 1 : pthreadpool_get_threads_count(threads));
    // In XNNPACK's order all weights would be read again for every few rows; and a task of XNNPACK's may be
    // too short for threads to share.
    const bool many = window * layer.results > std::size_t{512} * 1024;
    const bool short_tasks =
        threads != nullptr && (op.compute[0].tile[0] > rows || op.compute[0].tile[1] > columns);
    CHECK((op.compute[0].task_2d_tile_2d != task) == (many || short_tasks));
    if (threads != nullptr && !im2col &&
        layer.batch * layer.rows() * layer.columns() * window * layer.results < 100000) {
      CHECK(op.compute[0].tile[0] >= op.compute[0].range[0]);
      CHECK(op.compute[0].tile[1] >= op.compute[0].range[1]);
    }
  }
  std::size_t rank = 0;
  std::size_t dims[XNN_MAX_TENSOR_DIMS] = {};
  CHECK(xnn_get_external_value_shape(started, 1, &rank, dims) == xnn_status_success);
  CHECK(rank == 4 && dims[1] == layer.rows() && dims[2] == layer.columns());
  CHECK(xnn_setup_runtime_v2(started, 2, values) == xnn_status_success);
  CHECK(xnn_invoke_runtime(started) == xnn_status_success);
  CHECK(given == pixels);
  return results;
}

void check_byte_layer(const Layer& layer, bool im2col = true) {
  const std::unique_ptr<pthreadpool, decltype(&pthreadpool_destroy)> threads(pthreadpool_create(3),
                                                                             pthreadpool_destroy);
  const std::vector<std::int8_t> expected = run_byte_layer(layer, nullptr, false);
  CHECK(run_byte_layer(layer, nullptr, true, im2col) == expected);
  CHECK(run_byte_layer(layer, threads.get(), true, im2col) == expected);
}

bool has_some_values(const std::vector<std::int8_t>& results) {
  std::size_t different = 0;
  for (const std::int8_t one : results) {
    different += one != results[0] ? 1 : 0;
  }
  return different > results.size() / 2;
}

}  // namespace

TEST("windows of few channels are copied together, and the results have XNNPACK's bits") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  const Layer first = {1, 61, 47, 3, 64, 7, 7, 2, 2, 3, 3, 3, 3};
  CHECK(has_some_values(run_byte_layer(first, nullptr, true)));
  check_byte_layer(first);
  check_byte_layer({1, 33, 30, 3, 17, 7, 7, 2, 2, 0, 0, 0, 0});    // no padding
  check_byte_layer({3, 15, 13, 3, 5, 5, 5, 1, 1, 2, 2, 2, 2});     // several images
  check_byte_layer({1, 9, 8, 1, 20, 5, 5, 1, 2, 4, 1, 0, 6});      // windows outside the image
  check_byte_layer({1, 40, 37, 2, 33, 11, 11, 4, 4, 2, 2, 2, 2});  // rows of 22 bytes
  check_byte_layer({1, 20, 21, 4, 16, 5, 9, 3, 1, 1, 0, 2, 3});    // of 36
  check_byte_layer({1, 30, 9, 1, 70, 10, 3, 1, 1, 0, 0, 0, 0});    // of 3
  check_byte_layer({1, 7, 7, 3, 8, 7, 7, 1, 1, 0, 0, 0, 0});       // one window
}

TEST("narrow layers in 8 bits have the bits that AMX gives them") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  check_byte_layer({1, 31, 29, 3, 32, 3, 3, 2, 2, 1, 1, 1, 1}, false);   // a first layer of few pixels
  check_byte_layer({1, 14, 15, 24, 16, 1, 1, 1, 1, 0, 0, 0, 0}, false);  // narrow
  check_byte_layer({2, 9, 8, 67, 130, 3, 3, 1, 1, 1, 1, 1, 1}, false);   // wide and deep
  check_byte_layer({1, 1, 1, 33, 100, 1, 1, 1, 1, 0, 0, 0, 0}, false);   // one row
}

TEST("many weights are read for many rows at a time, and the results have XNNPACK's bits") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  check_byte_layer({1, 21, 9, 250, 300, 3, 3, 1, 1, 1, 1, 1, 1}, false);
  check_byte_layer({1, 90, 1, 1001, 601, 1, 1, 1, 1, 0, 0, 0, 0}, false);
}

#endif

TEST("AMX computes wide and deep layers, and vectors compute the others") {
  const auto by_vectors = [](const ByteProduct& product) {
    return vector_cycles(product) < tile_cycles(product);
  };
  CHECK(!by_vectors({56 * 56, 64, 9, 64, 1}));  // ResNet
  CHECK(!by_vectors({7 * 7, 512, 9, 512, 1}));
  CHECK(!by_vectors({112 * 112, 64, 1, 147, 1}));  // its first layer, by im2col
  CHECK(by_vectors({112 * 112, 32, 9, 3, 1}));     // MobileNet's
  CHECK(by_vectors({112 * 112, 16, 1, 32, 1}));
  CHECK(by_vectors({56 * 56, 24, 1, 96, 1}));
  CHECK(!by_vectors({7 * 7, 320, 1, 960, 1}));
  CHECK(by_vectors({1, 1000, 1, 1280, 1}));
  CHECK(by_vectors({28 * 28, 8, 9, 8, 26}));  // groups
}
