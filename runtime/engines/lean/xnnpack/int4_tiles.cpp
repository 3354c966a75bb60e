#include "lean/xnnpack/int4_tiles.h"

#include <xnnpack.h>
#include <xnnpack/common.h>
#include <xnnpack/config.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/microfnptr.h>
#include <xnnpack/microparams.h>
#include <xnnpack/node-type.h>
#include <xnnpack/subgraph.h>

#include <algorithm>

#include "lean/xnnpack/byte_tiles.h"
#include "lean/xnnpack/int4_tile.h"
#include "selection.h"

namespace slipway::lean {
namespace {

static_assert(offsetof(xnn_f32_qb4w_minmax_params, scalar.min) == offsetof(Int4Limits, least) &&
                  offsetof(xnn_f32_qb4w_minmax_params, scalar.max) == offsetof(Int4Limits, greatest) &&
                  offsetof(xnn_f32_qb4w_minmax_params, scalar.blocksize) == offsetof(Int4Limits, block),
              "our kernel reads XNNPACK's parameters");
static_assert(offsetof(xnn_qd8_quantization_params, zero_point) == offsetof(Int4Row, zero_point) &&
                  offsetof(xnn_qd8_quantization_params, inv_scale) == offsetof(Int4Row, scale) &&
                  sizeof(xnn_qd8_quantization_params) == sizeof(Int4Row),
              "our kernel reads XNNPACK's parameters");

// What XNNPACK's config functions return as constant are variables.
xnn_gemm_config* int4_table() {
  return const_cast<xnn_gemm_config*>(xnn_init_qd8_f32_qb4w_gemm_config());
}

// Our kernels for one row and for several; null where XNNPACK's are as good, or this build is without them.
struct Int4Set {
  Int4Gemm one = nullptr;
  Int4Gemm many = nullptr;
  std::size_t rows = 0;  // of a tile, at most
  const char* feature = "";
};

Int4Set int4_set() {
#if XNN_ARCH_X86_64
  if constexpr (has_int4_layers()) {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware != nullptr && hardware->use_x86_avx512vnni) {
      return {&avx512vnni::int4_gemm_one_on_avx512vnni, &avx512vnni::int4_gemm_on_avx512vnni, kInt4Rows,
              "avx512vnni"};
    }
    if (has_only_avx2()) {
      return {&avx2::int4_gemm_one_on_avx2, &avx2::int4_gemm_on_avx2, kInt4RowsInAvx2, "avx2"};
    }
  }
#endif
  return {};
}

std::size_t rows_before_last(const xnn_shape& shape) {
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.num_dims; ++i) {
    rows *= shape.dim[i];
  }
  return rows;
}

}  // namespace

std::size_t int4_rows(const xnn_node& node, const xnn_value* values) {
  const Int4Set set = int4_set();
  if (node.type != xnn_node_type_fully_connected || set.many == nullptr) {
    return 0;
  }
  const xnn_value& filter = values[node.inputs[1]];
  const xnn_value& output = values[node.outputs[0]];
  if (values[node.inputs[0]].datatype != xnn_datatype_qdint8 || filter.datatype != xnn_datatype_qbint4 ||
      output.datatype != xnn_datatype_fp32 || filter.shape.num_dims != 2 ||
      (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0) {
    return 0;
  }
  const std::size_t depth = filter.shape.dim[1];
  const std::size_t most = std::min(set.rows, kInt4RowsBytes / std::max<std::size_t>(depth, 1));
  // With few rows a tile reads the weights too often.
  if (most < set.rows / 3) {
    return 0;
  }
  // As many in each tile, where one does not have all.
  const std::size_t rows = rows_before_last(output.shape);
  const std::size_t tiles = (rows + most - 1) / most;
  return rows <= 1 ? most : (rows + tiles - 1) / tiles;
}

std::string int4_name(void (*kernel)()) {
  const Int4Set set = int4_set();
  const bool one = kernel == reinterpret_cast<void (*)()>(set.one);
  if (set.many == nullptr || (!one && kernel != reinterpret_cast<void (*)()>(set.many))) {
    return {};
  }
  return "slipway_qd8_f32_qb4w_gemm_" + std::to_string(one ? 1 : set.rows) + "x" +
         std::to_string(kInt4Columns) + "c" + std::to_string(kInt4Depth) + "__" + set.feature;
}

Int4Kernels::Int4Kernels(std::size_t rows) {
  xnn_gemm_config* config = int4_table();
  before_ = std::make_unique<xnn_gemm_config>(*config);
  config->minmax = {};
  const auto put = [config](std::size_t most, Int4Gemm kernel) {
    for (auto& function : config->minmax.dqgemm[most - 1].function) {
      function = reinterpret_cast<xnn_dqgemm_ukernel_fn>(kernel);
    }
  };
  put(rows, int4_set().many);
  put(1, int4_set().one);
  config->mr = static_cast<std::uint8_t>(rows);
  config->nr = kInt4Columns;
  config->log2_kr = 2;
  config->log2_sr = 0;
  config->planes = 2;
}

Int4Kernels::~Int4Kernels() {
  *int4_table() = *before_;
}

}  // namespace slipway::lean
