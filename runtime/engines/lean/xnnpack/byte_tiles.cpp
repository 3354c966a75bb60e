#include "lean/xnnpack/byte_tiles.h"

#include <xnnpack.h>
#include <xnnpack/common.h>
#include <xnnpack/config.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/microfnptr.h>
#include <xnnpack/microparams.h>
#include <xnnpack/node-type.h>
#include <xnnpack/pack.h>
#include <xnnpack/subgraph.h>

#include "lean/xnnpack/vector_kernels.h"
#include "selection.h"

namespace slipway::lean {
namespace {

static_assert(offsetof(xnn_qs8_qc8w_conv_minmax_params, fp32_scalar.output_zero_point) ==
                      offsetof(ByteLimits, zero_point) &&
                  offsetof(xnn_qs8_qc8w_conv_minmax_params, fp32_scalar.output_min) ==
                      offsetof(ByteLimits, least) &&
                  offsetof(xnn_qs8_qc8w_conv_minmax_params, fp32_scalar.output_max) ==
                      offsetof(ByteLimits, greatest),
              "our kernels read XNNPACK's parameters");
static_assert(offsetof(xnn_f32_minmax_params, scalar.min) == offsetof(FloatLimits, least) &&
                  offsetof(xnn_f32_minmax_params, scalar.max) == offsetof(FloatLimits, greatest),
              "our kernels read XNNPACK's parameters");
static_assert(offsetof(xnn_qd8_quantization_params, zero_point) == offsetof(ByteRow, zero_point) &&
                  offsetof(xnn_qd8_quantization_params, inv_scale) == offsetof(ByteRow, scale) &&
                  sizeof(xnn_qd8_quantization_params) == sizeof(ByteRow),
              "our kernels read XNNPACK's parameters");

using Kernel = void (*)();

// Null where this build is without them.
struct ByteSet {
  const ByteTile* many = nullptr;
  const ByteTile* one = nullptr;
};

ByteSet byte_set() {
#if XNN_ARCH_X86_64
  if constexpr (has_byte_layers()) {
    return {&avx2::kByteTile, &avx2::kByteLine};
  }
#endif
  return {};
}

// What XNNPACK's config functions return as constant are variables.
xnn_gemm_config* table_of(ByteTable table) {
  return const_cast<xnn_gemm_config*>(table == ByteTable::kStatic ? xnn_init_qs8_qc8w_gemm_config()
                                                                  : xnn_init_qd8_f32_qc8w_gemm_config());
}

template <typename Function, typename Ours>
void set_all(Function (&functions)[XNN_MAX_UARCH_TYPES], Ours kernel) {
  for (auto& function : functions) {
    function = reinterpret_cast<Function>(kernel);
  }
}

}  // namespace

bool has_only_avx2() {
#if XNN_ARCH_X86_64
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  return hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3 &&
         !hardware->use_x86_avx256skx && !hardware->use_x86_avx512skx && !hardware->use_x86_avxvnni;
#else
  return false;
#endif
}

const ByteDepthwise* byte_depthwise() {
#if XNN_ARCH_X86_64
  if constexpr (has_byte_layers()) {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3 &&
        !hardware->use_x86_avx256skx && !hardware->use_x86_avx512skx) {
      return avx2::kByteDepthwise;
    }
  }
#endif
  return nullptr;
}

ByteTable byte_table(const xnn_node& node, const xnn_value* values) {
  if (byte_set().many == nullptr || !has_only_avx2()) {
    return ByteTable::kNone;
  }
  if (byte_product(node, values).rows != 0) {
    return ByteTable::kStatic;
  }
  if (node.type != xnn_node_type_convolution_2d && node.type != xnn_node_type_fully_connected) {
    return ByteTable::kNone;
  }
  const xnn_value& filter = values[node.inputs[1]];
  return values[node.inputs[0]].datatype == xnn_datatype_qdint8 && filter.datatype == xnn_datatype_qcint8 &&
                 filter.data != nullptr && values[node.outputs[0]].datatype == xnn_datatype_fp32
             ? ByteTable::kDynamic
             : ByteTable::kNone;
}

const char* byte_name(void (*kernel)()) {
  static_assert(kByteRows == 6 && kByteColumns == 8 && kByteTogether == 4, "what they are called");
  const ByteSet set = byte_set();
  if (set.many == nullptr) {
    return "";
  }
  const auto is = [&](const auto& one, const auto& other) {
    return kernel == reinterpret_cast<Kernel>(one) || kernel == reinterpret_cast<Kernel>(other);
  };
  if (is(set.many->gemm, set.one->gemm)) {
    return "slipway_qs8_qc8w_gemm_6x8c4__avx2";
  }
  if (is(set.many->igemm, set.one->igemm)) {
    return "slipway_qs8_qc8w_igemm_6x8c4__avx2";
  }
  if (is(set.many->dynamic_gemm, set.one->dynamic_gemm)) {
    return "slipway_qd8_f32_qc8w_gemm_6x8c4__avx2";
  }
  return is(set.many->dynamic_igemm, set.one->dynamic_igemm) ? "slipway_qd8_f32_qc8w_igemm_6x8c4__avx2" : "";
}

ByteKernels::ByteKernels(ByteTable table) : config_(table == ByteTable::kNone ? nullptr : table_of(table)) {
  if (config_ == nullptr) {
    return;
  }
  before_ = std::make_unique<xnn_gemm_config>(*config_);
  config_->minmax = {};
  const auto put = [&](std::size_t rows, const ByteTile& tile) {
    if (table == ByteTable::kStatic) {
      set_all(config_->minmax.gemm[rows - 1].function, tile.gemm);
      set_all(config_->minmax.igemm[rows - 1].function, tile.igemm);
    } else {
      set_all(config_->minmax.dqgemm[rows - 1].function, tile.dynamic_gemm);
      set_all(config_->minmax.dqigemm[rows - 1].function, tile.dynamic_igemm);
    }
  };
  put(1, *byte_set().one);
  put(kByteRows, *byte_set().many);
  config_->mr = kByteRows;
  config_->nr = kByteColumns;
  config_->log2_kr = 2;
  config_->log2_sr = 0;
  config_->pack_weights_and_biases = nullptr;
  config_->packed_stride_weights_and_biases = nullptr;
  config_->pack_gemm_gio = reinterpret_cast<xnn_packw_gemm_gio_ukernel_fn>(&xnn_pack_qs8_gemm_gio_w);
  config_->pack_gemm_goi = reinterpret_cast<xnn_packw_gemm_goi_ukernel_fn>(&xnn_pack_qs8_gemm_goi_w);
  config_->pack_igemm_goki = reinterpret_cast<xnn_pack_conv_goki_w_fn>(&xnn_pack_qs8_conv_goki_w);
}

ByteKernels::~ByteKernels() {
  if (before_ != nullptr) {
    *config_ = *before_;
  }
}

}  // namespace slipway::lean
