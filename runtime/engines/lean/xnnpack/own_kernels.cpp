#include "lean/xnnpack/own_kernels.h"

#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>
#include <xnnpack/microfnptr.h>
#include <xnnpack/microparams.h>
#include <xnnpack/node-type.h>
#include <xnnpack/pack.h>
#include <xnnpack/subgraph.h>

#include <tuple>

#include "lean/xnnpack/winograd.h"
#include "selection.h"

namespace slipway::lean {
namespace {

#define SLIPWAY_SAME_PLACE(theirs, their_field, ours, our_field)            \
  static_assert(offsetof(theirs, their_field) == offsetof(ours, our_field), \
                "our kernels read XNNPACK's parameters")
SLIPWAY_SAME_PLACE(xnn_qs8_qc8w_conv_minmax_params, fp32_scalar.output_zero_point, ByteLimits, zero_point);
SLIPWAY_SAME_PLACE(xnn_qs8_qc8w_conv_minmax_params, fp32_scalar.output_min, ByteLimits, least);
SLIPWAY_SAME_PLACE(xnn_qs8_qc8w_conv_minmax_params, fp32_scalar.output_max, ByteLimits, greatest);
SLIPWAY_SAME_PLACE(xnn_f32_minmax_params, scalar.min, FloatLimits, least);
SLIPWAY_SAME_PLACE(xnn_f32_minmax_params, scalar.max, FloatLimits, greatest);
SLIPWAY_SAME_PLACE(xnn_qd8_quantization_params, zero_point, ByteRow, zero_point);
SLIPWAY_SAME_PLACE(xnn_qd8_quantization_params, inv_scale, ByteRow, scale);
static_assert(sizeof(xnn_qd8_quantization_params) == sizeof(ByteRow), "one for each row");
SLIPWAY_SAME_PLACE(xnn_f32_qb4w_minmax_params, scalar.min, Int4Limits, least);
SLIPWAY_SAME_PLACE(xnn_f32_qb4w_minmax_params, scalar.max, Int4Limits, greatest);
SLIPWAY_SAME_PLACE(xnn_f32_qb4w_minmax_params, scalar.blocksize, Int4Limits, block);
SLIPWAY_SAME_PLACE(xnn_qs8_add_minmax_params, scalar.bias, ByteSum, bias);
SLIPWAY_SAME_PLACE(xnn_qs8_add_minmax_params, scalar.a_multiplier, ByteSum, a_multiplier);
SLIPWAY_SAME_PLACE(xnn_qs8_add_minmax_params, scalar.b_multiplier, ByteSum, b_multiplier);
SLIPWAY_SAME_PLACE(xnn_qs8_add_minmax_params, scalar.shift, ByteSum, shift);
SLIPWAY_SAME_PLACE(xnn_qs8_add_minmax_params, scalar.output_zero_point, ByteSum, limits);
SLIPWAY_SAME_PLACE(xnn_qs8_mul_minmax_params, scalar.a_zero_point, ByteProduct, a_zero_point);
SLIPWAY_SAME_PLACE(xnn_qs8_mul_minmax_params, scalar.b_zero_point, ByteProduct, b_zero_point);
SLIPWAY_SAME_PLACE(xnn_qs8_mul_minmax_params, scalar.scale, ByteProduct, scale);
SLIPWAY_SAME_PLACE(xnn_qs8_mul_minmax_params, scalar.output_zero_point, ByteProduct, limits);
#undef SLIPWAY_SAME_PLACE

using Function = void (*)();

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
    // XNNPACK has nothing between its kernels for AVX2 and those for VNNI in AVX-512.
    if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3) {
      return {&avx2::int4_gemm_one_on_avx2, &avx2::int4_gemm_on_avx2, kInt4RowsInAvx2, "avx2"};
    }
  }
#endif
  return {};
}

// The rows of our tile for that node; 0 where only XNNPACK has a kernel for it.
std::size_t int4_rows(const Int4Set& set, const xnn_node& node, const xnn_value* values) {
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
  const std::size_t rows = rows_of(output);
  const std::size_t tiles = (rows + most - 1) / most;
  return rows <= 1 ? most : (rows + tiles - 1) / tiles;
}

// Taps of a depthwise convolution's window; 0 for other nodes.
std::size_t window_taps(const xnn_node& node) {
  const auto taps = [](const auto& params) {
    return std::size_t{params.kernel_height} * params.kernel_width;
  };
  const auto& single = node.params.depthwise_convolution_2d;
  const auto& grouped = node.params.convolution_2d;
  if (node.type == xnn_node_type_depthwise_convolution_2d && single.depth_multiplier == 1) {
    return taps(single);
  }
  return node.type == xnn_node_type_convolution_2d && grouped.group_input_channels == 1 &&
                 grouped.group_output_channels == 1
             ? taps(grouped)
             : 0;
}

// A kernel of ours, and XNNPACK's table that it goes into.
struct DepthwiseChoice {
  const xnn_dwconv_config* (*table)() = nullptr;
  std::size_t entries = 0;
  std::size_t channels = 0;  // of a block of packed weights
  std::size_t taps = 0;      // 0: none
  void (*kernel)() = nullptr;
};

// Many taps more than the window has would be computed for nothing; XNNPACK has kernels for few taps.
bool is_for(std::size_t kernel_taps, std::size_t taps) {
  return kernel_taps >= taps && kernel_taps * 3 <= taps * 4;
}

// The least kernel that is for so many taps, in the table that `choice` names.
template <typename Kernel>
DepthwiseChoice least_for(std::size_t taps, const Kernel* kernels, std::size_t count,
                          DepthwiseChoice choice) {
  const Kernel* end = kernels + count;
  const Kernel* kernel =
      std::find_if(kernels, end, [&](const Kernel& one) { return is_for(one.taps, taps); });
  if (kernel != end) {
    choice.taps = kernel->taps;
    choice.kernel = reinterpret_cast<void (*)()>(kernel->kernel);
  }
  return choice;
}

// 0 where this processor or this build is without them.
std::size_t byte_kernel_count() {
  return byte_depthwise() == nullptr ? 0 : kByteDepthwiseKernels;
}

DepthwiseChoice kernel_for(const xnn_node& node, const xnn_value* values) {
  const TileSet* set = float_tiles();
  const std::size_t taps = window_taps(node);
  if (taps < 2) {
    return {};
  }
  const xnn_datatype type = values[node.inputs[0]].datatype;
  if (type == xnn_datatype_qint8 && is_bytes(values[node.inputs[1]])) {
    return least_for(taps, byte_depthwise(), byte_kernel_count(),
                     {&xnn_init_qs8_qc8w_dwconv_config, XNN_MAX_QC8_DWCONV_UKERNELS, kByteChannels});
  }
  if (set != nullptr && type == xnn_datatype_fp32) {
    return least_for(taps, set->depthwise, kDepthwiseKernels,
                     {&xnn_init_f32_dwconv_config, XNN_MAX_F32_DWCONV_UKERNELS, set->lanes});
  }
  if (set != nullptr && type == xnn_datatype_fp16) {
    return least_for(taps, set->half_depthwise, kHalfDepthwiseKernels,
                     {&xnn_init_f16_dwconv_config, XNN_MAX_F16_DWCONV_UKERNELS, set->lanes});
  }
  return {};
}

}  // namespace

const TileSet* float_tiles() {
#if XNN_ARCH_X86_64
  if constexpr (!has_float_layers()) {
    return nullptr;
  }
  static const TileSet* const found = []() -> const TileSet* {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware == nullptr || !hardware->use_x86_f16c) {
      return nullptr;
    }
    if (hardware->use_x86_avx512f) {
      return &avx512f::kTiles;
    }
    return hardware->use_x86_avx2 && hardware->use_x86_fma3 ? &avx2::kTiles : nullptr;
  }();
  return found;
#else
  return nullptr;
#endif
}

const TileSet* half_tiles() {
#if XNN_ARCH_X86_64
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  return hardware == nullptr || hardware->use_x86_avx512fp16 ? nullptr : float_tiles();
#else
  return nullptr;
#endif
}

const ByteTiles* byte_tiles() {
#if XNN_ARCH_X86_64
  if constexpr (has_byte_layers()) {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware != nullptr && hardware->use_x86_avx512vnni && !hardware->use_x86_avx512amx) {
      return &avx512vnni::kByteTiles;
    }
    if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3 &&
        !hardware->use_x86_avx256skx && !hardware->use_x86_avx512skx && !hardware->use_x86_avxvnni) {
      return &avx2::kByteTiles;
    }
  }
#endif
  return nullptr;
}

const ByteDepthwise* byte_depthwise() {
#if XNN_ARCH_X86_64
  if constexpr (has_byte_layers()) {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware != nullptr && hardware->use_x86_avx512vnni && hardware->use_x86_avx512vbmi) {
      return avx512vnnivbmi::kByteDepthwise;
    }
    if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3) {
      return avx2::kByteDepthwise;
    }
  }
#endif
  return nullptr;
}

Changed<xnn_gemm_config> byte_kernels(const xnn_node& node, const xnn_value* values) {
  const ByteTiles* tiles = byte_tiles();
  if (tiles == nullptr ||
      (node.type != xnn_node_type_convolution_2d && node.type != xnn_node_type_fully_connected)) {
    return change<xnn_gemm_config>(nullptr);
  }
  const LayerProduct product = product_of(node, values);
  if (product.columns < tiles->least_columns || product.pixels > tiles->most_taps) {
    return change<xnn_gemm_config>(nullptr);
  }
  const bool is_static = byte_product(node, values).rows != 0;
  const xnn_value& filter = values[node.inputs[1]];
  const bool is_dynamic = values[node.inputs[0]].datatype == xnn_datatype_qdint8 &&
                          filter.datatype == xnn_datatype_qcint8 && filter.data != nullptr &&
                          values[node.outputs[0]].datatype == xnn_datatype_fp32;
  auto config = change(is_static    ? xnn_init_qs8_qc8w_gemm_config()
                       : is_dynamic ? xnn_init_qd8_f32_qc8w_gemm_config()
                                    : nullptr);
  if (config == nullptr) {
    return config;
  }
  config->minmax = {};
  for (const auto& [rows, tile] :
       {std::pair(std::size_t{1}, &tiles->one), std::pair(tiles->rows, &tiles->many)}) {
    if (is_static) {
      put(config->minmax.gemm[rows - 1].function, tile->gemm);
      put(config->minmax.igemm[rows - 1].function, tile->igemm);
    } else {
      put(config->minmax.dqgemm[rows - 1].function, tile->dynamic_gemm);
      put(config->minmax.dqigemm[rows - 1].function, tile->dynamic_igemm);
    }
  }
  config->mr = static_cast<std::uint8_t>(tiles->rows);
  config->nr = static_cast<std::uint8_t>(tiles->columns);
  config->log2_kr = 2;
  config->log2_sr = 0;
  config->pack_weights_and_biases = nullptr;
  config->packed_stride_weights_and_biases = nullptr;
  config->pack_gemm_gio = reinterpret_cast<xnn_packw_gemm_gio_ukernel_fn>(&xnn_pack_qs8_gemm_gio_w);
  config->pack_gemm_goi = reinterpret_cast<xnn_packw_gemm_goi_ukernel_fn>(&xnn_pack_qs8_gemm_goi_w);
  config->pack_igemm_goki = reinterpret_cast<xnn_pack_conv_goki_w_fn>(&xnn_pack_qs8_conv_goki_w);
  return config;
}

Changed<xnn_gemm_config> int4_kernels(const xnn_node& node, const xnn_value* values) {
  const Int4Set set = int4_set();
  const std::size_t rows = int4_rows(set, node, values);
  auto config = change(rows == 0 ? nullptr : xnn_init_qd8_f32_qb4w_gemm_config());
  if (config == nullptr) {
    return config;
  }
  config->minmax = {};
  put(config->minmax.dqgemm[rows - 1].function, set.many);
  put(config->minmax.dqgemm[0].function, set.one);
  config->mr = static_cast<std::uint8_t>(rows);
  config->nr = kInt4Columns;
  config->log2_kr = 2;
  config->log2_sr = 0;
  config->planes = 2;
  return config;
}

Changed<xnn_dwconv_config> depthwise_kernels(const xnn_node& node, const xnn_value* values) {
  const DepthwiseChoice found = kernel_for(node, values);
  auto configs = change(found.taps == 0 ? nullptr : found.table(), found.entries);
  for (std::size_t i = 0; configs != nullptr && i < found.entries; ++i) {
    xnn_dwconv_config& config = configs.get()[i];
    config.minmax.unipass = reinterpret_cast<xnn_dwconv_unipass_ukernel_fn>(found.kernel);
    config.linear = {};
    config.channel_tile = static_cast<std::uint8_t>(found.channels);
    config.channel_subtile = static_cast<std::uint8_t>(found.channels);
    config.channel_round = 1;
    config.primary_tile = static_cast<std::uint8_t>(found.taps);
    config.middle_tile = 0;
    config.last_tile = 0;
  }
  return configs;
}

Changed<xnn_vmulcaddc_config> channel_kernels(const xnn_node& node, const xnn_value* values) {
  const TileSet* set = float_tiles();
  const bool ours =
      set != nullptr && window_taps(node) == 1 && values[node.inputs[0]].datatype == xnn_datatype_fp32;
  auto config = change(ours ? xnn_init_f32_vmulcaddc_config() : nullptr);
  if (config != nullptr) {
    config->ukernel = reinterpret_cast<xnn_vmulcaddc_ukernel_fn>(set->scale_channels);
    config->channel_tile = static_cast<std::uint8_t>(set->lanes);
  }
  return config;
}

namespace {

// "slipway_f32_gemm_12x32__avx512f"; `rest` is what stands behind the first number.
std::string named(const char* type, const char* kind, std::size_t number, const std::string& rest,
                  const char* isa) {
  std::string name = "slipway_";
  name += type;
  name += kind;
  name += std::to_string(number);
  name += rest;
  name += "__";
  return name += isa;
}

std::string by_columns(std::size_t columns) {
  return "x" + std::to_string(columns);
}

}  // namespace

std::string tile_name(void (*kernel)()) {
  const auto is = [kernel](auto* ours) { return kernel == reinterpret_cast<Function>(ours); };
  if (kernel == nullptr) {
    return {};
  }
  static_assert(kByteTogether == 4 && kInt4Depth == 4 && kByteChannels == 16, "what they are called");
  if (const ByteTiles* bytes = byte_tiles()) {
    // One name for all rows: a kernel computes up to that many.
    for (const ByteTile* one : {&bytes->many, &bytes->one}) {
      for (const auto& [found, type, kind] :
           {std::tuple(is(one->gemm), "qs8", "_qc8w_gemm_"),
            std::tuple(is(one->igemm), "qs8", "_qc8w_igemm_"),
            std::tuple(is(one->dynamic_gemm), "qd8_f32", "_qc8w_gemm_"),
            std::tuple(is(one->dynamic_igemm), "qd8_f32", "_qc8w_igemm_")}) {
        if (found) {
          return named(type, kind, bytes->rows, by_columns(bytes->columns) + "c4", bytes->feature);
        }
      }
    }
  }
  const Int4Set int4 = int4_set();
  if (is(int4.one) || is(int4.many)) {
    return named("qd8_f32", "_qb4w_gemm_", is(int4.one) ? 1 : int4.rows, by_columns(kInt4Columns) + "c4",
                 int4.feature);
  }
  for (std::size_t i = 0; i < byte_kernel_count(); ++i) {
    if (is(byte_depthwise()[i].kernel)) {
      return named("qs8", "_qc8w_dwconv_", byte_depthwise()[i].taps, "p16c",
                   byte_depthwise() == avx2::kByteDepthwise ? "avx2" : "avx512vnnivbmi");
    }
  }
  const TileSet* set = float_tiles();
  if (set == nullptr) {
    return {};
  }
  std::string name = winograd_name(kernel);
  const auto tile = [&](const auto& tiles, const char* type) {
    for (std::size_t i = 0; i < kMostTileVectors * kMostTileRows; ++i) {
      const auto& one = tiles[i / kMostTileRows][i % kMostTileRows];
      if (is(one.gemm) || is(one.igemm)) {
        name = named(type, is(one.gemm) ? "_gemm_" : "_igemm_", i % kMostTileRows + 1,
                     by_columns((i / kMostTileRows + 1) * set->lanes), set->isa);
      }
    }
  };
  const auto window = [&](const auto& kernels, const char* type) {
    for (const auto& one : kernels) {
      if (is(one.kernel)) {
        name = named(type, "_dwconv_", one.taps, "p", set->isa);
      }
    }
  };
  tile(set->tiles, "f32");
  tile(set->halves, "f16_f32acc");
  window(set->depthwise, "f32");
  window(set->half_depthwise, "f16_f32acc");
  return name;
}

}  // namespace slipway::lean
