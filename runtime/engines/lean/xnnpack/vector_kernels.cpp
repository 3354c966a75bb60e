#include "lean/xnnpack/own_kernels.h"

#include <xnnpack/common.h>
#include <xnnpack/microfnptr.h>
#include <xnnpack/node-type.h>
#include <xnnpack/subgraph.h>

// Kernels that the library lacks, or a selective build left out, are null.
#if XNN_ARCH_X86_64 && defined(__ELF__)
#define SLIPWAY_KERNEL(name) extern "C" __attribute__((weak)) void name()
SLIPWAY_KERNEL(xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_16x64c4__avx512amx);
SLIPWAY_KERNEL(xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_1x16c8__avx512vnni_prfm);
SLIPWAY_KERNEL(xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_7x16c8__avx512vnni_prfm);
SLIPWAY_KERNEL(xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_1x16c8__avx512vnni_prfm);
SLIPWAY_KERNEL(xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_7x16c8__avx512vnni_prfm);
SLIPWAY_KERNEL(xnn_pack_qs8_to_qu8_gemm_gio_w);
SLIPWAY_KERNEL(xnn_pack_qs8_to_qu8_gemm_goi_w);
SLIPWAY_KERNEL(xnn_pack_qs8_to_qu8_conv_goki_w);
SLIPWAY_KERNEL(xnn_qs8_to_qu8_packw_gemm_goi_ukernel_x16c8__avx256vnni);
#undef SLIPWAY_KERNEL
#endif

namespace slipway::lean {
namespace {

constexpr std::size_t kVectorRows = 7;
constexpr std::size_t kVectorColumns = 16;
constexpr std::size_t kVectorChannels = 8;
constexpr std::size_t kTileRows = 16;
constexpr std::size_t kTileColumns = 64;
constexpr std::size_t kTileChannels = 64;

double parts(std::size_t count, std::size_t unit) {
  return static_cast<double>((count + unit - 1) / unit);
}

}  // namespace

std::size_t rows_of(const xnn_value& value) {
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < value.shape.num_dims; ++i) {
    rows *= value.shape.dim[i];
  }
  return rows;
}

bool is_bytes(const xnn_value& value) {
  return value.datatype == xnn_datatype_qint8 || value.datatype == xnn_datatype_qcint8;
}

LayerProduct product_of(const xnn_node& node, const xnn_value* values) {
  LayerProduct found;
  const auto window = [&found](const auto& params) {
    found.pixels = std::size_t{params.kernel_height} * params.kernel_width;
    found.columns = params.group_output_channels;
    found.channels = params.group_input_channels;
    found.groups = params.groups;
  };
  if (node.type == xnn_node_type_convolution_2d) {
    window(node.params.convolution_2d);
    // A depthwise convolution, or a product of vectors.
    if (found.groups != 1 && found.columns == 1 && found.channels == 1) {
      return {};
    }
    found.rows = rows_of(values[node.outputs[0]]);
  } else if (node.type == xnn_node_type_deconvolution_2d) {
    const auto& params = node.params.deconvolution_2d;
    window(params);
    const std::size_t phases =
        std::max<std::size_t>(std::size_t{params.upsampling_height} * params.upsampling_width, 1);
    found.pixels = std::max<std::size_t>(found.pixels / phases, 1);
    found.rows = rows_of(values[node.outputs[0]]) / phases;
  } else if (node.type == xnn_node_type_fully_connected) {
    const xnn_shape& filter = values[node.inputs[1]].shape;
    const bool transposed = (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
    if (filter.num_dims == 2) {
      found.rows = rows_of(values[node.outputs[0]]);
      found.columns = filter.dim[transposed ? 1 : 0];
      found.channels = filter.dim[transposed ? 0 : 1];
    }
  } else if (node.type == xnn_node_type_batch_matrix_multiply) {
    const xnn_shape& left = values[node.inputs[0]].shape;
    const xnn_shape& result = values[node.outputs[0]].shape;
    if (left.num_dims >= 2 && result.num_dims >= 2) {
      found.rows = left.dim[left.num_dims - 2];
      found.channels = left.dim[left.num_dims - 1];
      found.columns = result.dim[result.num_dims - 1];
    }
  }
  return found;
}

LayerProduct byte_product(const xnn_node& node, const xnn_value* values) {
  if ((node.type != xnn_node_type_convolution_2d && node.type != xnn_node_type_fully_connected) ||
      values[node.inputs[0]].datatype != xnn_datatype_qint8 || !is_bytes(values[node.inputs[1]]) ||
      values[node.outputs[0]].datatype != xnn_datatype_qint8 || values[node.inputs[1]].data == nullptr) {
    return {};
  }
  const LayerProduct found = product_of(node, values);
  // A convolution of one channel to one is computed as a depthwise one.
  const bool single = node.type == xnn_node_type_convolution_2d && found.columns == 1 && found.channels == 1;
  return single ? LayerProduct() : found;
}

namespace {

// Roughly, in processor cycles. The numbers of both are measured, on an Intel processor of the kind that AMX
// came with.
double tile_cycles(const LayerProduct& product) {
  const double steps = static_cast<double>(product.pixels) * parts(product.channels, kTileChannels);
  return static_cast<double>(product.groups) * parts(product.rows, kTileRows) *
         (330 + parts(product.columns, kTileColumns) * (270 + 150 * steps));
}

double vector_cycles(const LayerProduct& product) {
  const double steps = static_cast<double>(product.pixels) * parts(product.channels, kVectorChannels);
  const double panels = static_cast<double>(product.groups) * parts(product.columns, kVectorColumns);
  return product.rows == 1 ? panels * (30 + 2 * steps)
                           : panels * parts(product.rows, kVectorRows) * (50 + 7.5 * steps);
}

// Whether XNNPACK has both sets of kernels here, and chose AMX.
bool has_both_sets() {
#if XNN_ARCH_X86_64 && defined(__ELF__)
  const xnn_gemm_config* config = xnn_init_qs8_qc8w_gemm_config();
  void (*const amx)() = xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_16x64c4__avx512amx;
  void (*const needed[])() = {amx,
                              xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_1x16c8__avx512vnni_prfm,
                              xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_7x16c8__avx512vnni_prfm,
                              xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_1x16c8__avx512vnni_prfm,
                              xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_7x16c8__avx512vnni_prfm,
                              xnn_pack_qs8_to_qu8_gemm_gio_w,
                              xnn_pack_qs8_to_qu8_gemm_goi_w,
                              xnn_pack_qs8_to_qu8_conv_goki_w};
  return config != nullptr && std::find(std::begin(needed), std::end(needed), nullptr) == std::end(needed) &&
         reinterpret_cast<void (*)()>(config->minmax.gemm[kTileRows - 1].function[XNN_UARCH_DEFAULT]) == amx;
#else
  return false;
#endif
}

}  // namespace

Changed<xnn_gemm_config> vector_kernels(const xnn_node& node, const xnn_value* values) {
  const LayerProduct product = has_both_sets() ? byte_product(node, values) : LayerProduct();
  const bool faster = product.rows != 0 && vector_cycles(product) < tile_cycles(product);
  auto config = change(faster ? xnn_init_qs8_qc8w_gemm_config() : nullptr);
#if XNN_ARCH_X86_64 && defined(__ELF__)
  if (config == nullptr) {
    return config;
  }
  config->minmax = {};
  const auto set = [&config](std::size_t rows, void (*gemm)(), void (*igemm)()) {
    put(config->minmax.gemm[rows - 1].function, gemm);
    put(config->minmax.igemm[rows - 1].function, igemm);
  };
  set(1, xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_1x16c8__avx512vnni_prfm,
      xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_1x16c8__avx512vnni_prfm);
  set(kVectorRows, xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_7x16c8__avx512vnni_prfm,
      xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_7x16c8__avx512vnni_prfm);
  config->mr = kVectorRows;
  config->nr = kVectorColumns;
  config->log2_kr = 3;
  // These kernels take the sign from the pixels: the packed weights have other sums.
  config->pack_gemm_gio = reinterpret_cast<xnn_packw_gemm_gio_ukernel_fn>(xnn_pack_qs8_to_qu8_gemm_gio_w);
  void (*const quick)() = xnn_qs8_to_qu8_packw_gemm_goi_ukernel_x16c8__avx256vnni;
  config->pack_gemm_goi = reinterpret_cast<xnn_packw_gemm_goi_ukernel_fn>(
      quick != nullptr ? quick : xnn_pack_qs8_to_qu8_gemm_goi_w);
  config->pack_igemm_goki = reinterpret_cast<xnn_pack_conv_goki_w_fn>(xnn_pack_qs8_to_qu8_conv_goki_w);
#endif
  return config;
}

}  // namespace slipway::lean
