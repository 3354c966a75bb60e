#include "lean/xnnpack/weight_packing.h"

#include <xnnpack/config.h>
#include <xnnpack/node-type.h>
#include <xnnpack/pack.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lean/xnnpack/byte_tile.h"
#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {
namespace {

using RowsPacker = xnn_packw_gemm_goi_ukernel_fn;
using WindowsPacker = xnn_pack_conv_goki_w_fn;

// For less, waking the threads takes longer.
constexpr std::size_t kLeastSplit = std::size_t{256} * 1024;
constexpr std::size_t kTasksPerThread = 4;

template <typename Function>
RowsPacker rows_function(Function* function) {
  return reinterpret_cast<RowsPacker>(function);
}

template <typename Function>
WindowsPacker windows_function(Function* function) {
  return reinterpret_cast<WindowsPacker>(function);
}

template <typename From, typename Element>
void pack_goi(std::size_t groups, std::size_t columns, std::size_t depth, std::size_t panel, std::size_t,
              std::size_t, const From* weights, const From* bias, const void*, Element* packed, std::size_t,
              const void*) {
  PackRows<From, Element> pack;
  if constexpr (sizeof(Element) == sizeof(float)) {
    pack = float_tiles()->pack_rows;
  } else if constexpr (sizeof(From) == sizeof(float)) {
    pack = float_tiles()->pack_rounded;
  } else {
    pack = float_tiles()->pack_halves;
  }
  const std::size_t panels = (columns + panel - 1) / panel;
  for (std::size_t group = 0; group < groups; ++group) {
    pack(columns, depth, panel, weights + group * columns * depth,
         bias == nullptr ? nullptr : bias + group * columns, packed + group * panels * panel * (depth + 1), 0,
         panels);
  }
}

// Weights in columns; `stride` elements from one element of the depth to the next.
template <typename Element>
void pack_gio(std::size_t groups, std::size_t columns, std::size_t depth, std::size_t panel, std::size_t,
              std::size_t, std::size_t stride, const Element* weights, const Element* bias, const void*,
              Element* packed, std::size_t, const void*) {
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t begin = 0; begin < columns; begin += panel) {
      const std::size_t some = std::min(panel, columns - begin);
      const Element* from = bias == nullptr ? nullptr : bias + begin;
      for (std::size_t k = 0; k <= depth; ++k, packed += panel) {
        if (from == nullptr) {
          std::fill_n(packed, panel, Element{});
        } else {
          std::copy_n(from, some, packed);
          std::fill_n(packed + some, panel - some, Element{});
        }
        from = weights + k * stride + begin;
      }
    }
    weights += depth * stride;
    bias = bias == nullptr ? nullptr : bias + columns;
  }
}

// What XNNPACK computes with one another in layers whose weights are packed here.
struct PackedType {
  xnn_datatype input;
  xnn_datatype filter;
  xnn_datatype output;
  const xnn_gemm_config* (*config)();
  std::size_t stored;   // bytes of a weight
  std::size_t element;  // and of a packed one
  std::size_t numbers;  // of float32 behind each panel, for each of its columns
};

constexpr PackedType kPackedTypes[] = {
    {xnn_datatype_fp32, xnn_datatype_fp32, xnn_datatype_fp32, &xnn_init_f32_gemm_config, 4, 4, 0},
    {xnn_datatype_fp16, xnn_datatype_fp16, xnn_datatype_fp16, &xnn_init_f16_gemm_config, 2, 2, 0},
    {xnn_datatype_fp16, xnn_datatype_fp32, xnn_datatype_fp16, &xnn_init_f16_gemm_config, 4, 2, 0},
    {xnn_datatype_qint8, xnn_datatype_qcint8, xnn_datatype_qint8, &xnn_init_qs8_qc8w_gemm_config, 1, 1, 1},
    {xnn_datatype_qdint8, xnn_datatype_qcint8, xnn_datatype_fp32, &xnn_init_qd8_f32_qc8w_gemm_config, 1, 1,
     2},
    {xnn_datatype_qdint8, xnn_datatype_qcint8, xnn_datatype_fp16, &xnn_init_qd8_f16_qc8w_gemm_config, 1, 1,
     2},
};

// Of a layer's weights, and of the kernel that will read them.
struct PanelSizes : LayerProduct {
  std::size_t panel = 0;  // columns that are packed together: the kernel's nr
  std::size_t kr = 1;
  std::size_t sr = 1;
  const PackedType* type = nullptr;

  std::size_t count() const { return (columns + panel - 1) / panel; }
  std::size_t column_bytes() const { return depth() * type->stored; }
  std::size_t bias_bytes() const { return type->stored == 1 ? sizeof(std::int32_t) : type->stored; }
  std::size_t padded_channels() const { return (channels + kr * sr - 1) / (kr * sr) * kr * sr; }
  std::size_t extra() const { return panel * type->numbers * sizeof(float); }
  std::size_t panel_bytes() const {
    const std::size_t start = type->element == 1 ? sizeof(std::int32_t) : type->element;
    return panel * (start + pixels * padded_channels() * type->element) + extra();
  }
};

struct LayerPacking {
  PanelSizes sizes;
  RowsPacker rows = nullptr;  // one of these; or
  WindowsPacker windows = nullptr;
  std::int32_t bytes_zero = 0;  // neither: 8 bits, whose sums are taken off the bias so many times
  bool writes_all = false;      // of a panel that has all of its columns
  xnn_qs8_packing_params params = {};
  const std::uint8_t* weights = nullptr;
  const std::uint8_t* bias = nullptr;  // nullptr: none
  const float* scales = nullptr;       // one for each column
  const float* offsets = nullptr;      // behind those; nullptr: none
  float input_scale = 1;
  float output_scale = 1;
  std::uint8_t* packed = nullptr;
};

constexpr std::size_t kEight = 8;
constexpr std::uint64_t kEverySecondByte = 0x00ff00ff00ff00ffU;
constexpr std::uint64_t kTopBits = 0x8080808080808080U;

// Every kTogether bytes go `step` after those before. Returns the sum of up to kMostQuadBytes of them.
template <std::size_t kTogether>
std::int32_t pack_column(const std::int8_t* from, std::size_t count, std::uint8_t* to, std::size_t step) {
  std::uint64_t sums = 0;
  std::size_t k = 0;
  for (; k + kEight <= count; k += kEight) {
    std::uint64_t eight;
    std::memcpy(&eight, from + k, kEight);
    for (std::size_t part = 0; part < kEight; part += kTogether, to += step) {
      std::memcpy(to, from + k + part, kTogether);
    }
    const std::uint64_t above = eight ^ kTopBits;  // by 128 more
    sums += (above & kEverySecondByte) + (above >> 8 & kEverySecondByte);
  }
  const auto total = static_cast<std::int32_t>(sums * 0x0001000100010001U >> 48);
  std::int32_t sum = total - 128 * static_cast<std::int32_t>(k);
  for (; k < count; k += kTogether, to += step) {
    std::int8_t last[kTogether] = {};
    std::memcpy(last, from + k, std::min(kTogether, count - k));
    for (const std::int8_t weight : last) {
      sum += weight;
    }
    std::memcpy(to, last, kTogether);
  }
  return sum;
}

// The same of a vector's lanes of columns at once, which are `stride` apart; false where that cannot be.
bool pack_lanes(const std::int8_t* from, std::size_t stride, std::size_t count, std::uint8_t* to,
                std::size_t step, std::int32_t* sums) {
  const TileSet* set = float_tiles();
  const std::size_t whole = count / 4 * 4;
  if (set == nullptr || whole < 4 * set->lanes) {
    return false;
  }
  set->pack_quads(from, stride, whole, to, step, sums);
  for (std::size_t i = 0; i < set->lanes; ++i) {
    sums[i] += pack_column<4>(from + i * stride + whole, count - whole, to + whole / 4 * step + i * 4, step);
  }
  return true;
}

// Columns of one panel. Each begins with its bias less the sum of its weights times `zero`.
template <std::size_t kTogether>
void pack_byte_panel(const PanelSizes& sizes, const std::int8_t* weights, const std::int32_t* bias,
                     std::int32_t zero, std::uint8_t* packed, std::size_t columns) {
  // So many bytes of a column before the next column's: a panel's part of them stays in the first cache.
  constexpr std::size_t kBytesOfColumn = 256;
  constexpr std::size_t kMostLanes = 16;
  static_assert(kBytesOfColumn <= kMostQuadBytes, "sums of a call fit into their bits");
  const std::size_t lanes = float_tiles() == nullptr ? columns + 1 : float_tiles()->lanes;
  auto* starts = reinterpret_cast<std::int32_t*>(packed);
  for (std::size_t n = 0; n < columns; ++n) {
    starts[n] = bias == nullptr ? 0 : bias[n];
  }
  std::uint8_t* to = packed + sizes.panel * sizeof(std::int32_t);
  for (std::size_t w = 0; w < sizes.pixels; ++w, to += sizes.panel * sizes.padded_channels()) {
    for (std::size_t k = 0; k < sizes.channels; k += kBytesOfColumn) {
      const std::size_t count = std::min(kBytesOfColumn, sizes.channels - k);
      const std::int8_t* from = weights + w * sizes.channels + k;
      std::uint8_t* part = to + k * sizes.panel;
      std::size_t n = 0;
      for (std::size_t some = 1; n < columns; n += some) {
        std::int32_t sums[kMostLanes] = {};
        const std::int8_t* column = from + n * sizes.column_bytes();
        std::uint8_t* target = part + n * kTogether;
        some = kTogether == 4 && n + lanes <= columns &&
                       pack_lanes(column, sizes.column_bytes(), count, target, sizes.panel * kTogether, sums)
                   ? lanes
                   : 1;
        if (some == 1) {
          sums[0] = pack_column<kTogether>(column, count, target, sizes.panel * kTogether);
        }
        for (std::size_t i = 0; i < some; ++i) {
          starts[n + i] -= zero * sums[i];
        }
      }
    }
  }
}

// Some panels of a group.
void pack_panels(void* context, std::size_t group, std::size_t first, std::size_t count) {
  const auto& layer = *static_cast<const LayerPacking*>(context);
  const PanelSizes& sizes = layer.sizes;
  const std::size_t begin = first * sizes.panel;
  const std::size_t skipped = group * sizes.columns + begin;
  const std::size_t columns = std::min(sizes.columns - begin, count * sizes.panel);
  std::uint8_t* packed = layer.packed + (group * sizes.count() + first) * sizes.panel_bytes();
  const std::uint8_t* weights = layer.weights + skipped * sizes.column_bytes();
  const std::uint8_t* bias = layer.bias == nullptr ? nullptr : layer.bias + skipped * sizes.bias_bytes();
  if (!layer.writes_all || columns != count * sizes.panel) {
    std::memset(packed, 0, count * sizes.panel_bytes());
  }
  if (layer.windows != nullptr) {
    layer.windows(1, columns, sizes.pixels, sizes.channels, sizes.panel, sizes.kr, sizes.sr, weights, bias,
                  nullptr, packed, sizes.extra(), &layer.params);
  } else if (layer.rows != nullptr) {
    layer.rows(1, columns, sizes.depth(), sizes.panel, sizes.kr, sizes.sr, weights, bias, nullptr, packed,
               sizes.extra(), &layer.params);
  }
  const auto pack_bytes = sizes.kr == 4 ? &pack_byte_panel<4> : &pack_byte_panel<8>;
  for (std::size_t at = 0; at < columns; at += sizes.panel, packed += sizes.panel_bytes()) {
    const std::size_t some = std::min(sizes.panel, columns - at);
    if (layer.windows == nullptr && layer.rows == nullptr) {
      const auto* biases = reinterpret_cast<const std::int32_t*>(bias);
      pack_bytes(sizes, reinterpret_cast<const std::int8_t*>(weights) + at * sizes.column_bytes(),
                 biases == nullptr ? nullptr : biases + at, layer.bytes_zero, packed, some);
    }
    auto* numbers = reinterpret_cast<float*>(packed + sizes.panel_bytes() - sizes.extra());
    for (std::size_t n = 0; layer.scales != nullptr && n < some; ++n) {
      numbers[n] = layer.input_scale * layer.scales[skipped + at + n] / layer.output_scale;
      if (sizes.type->numbers > 1) {
        numbers[sizes.panel + n] = layer.offsets == nullptr ? 0 : layer.offsets[skipped + at + n];
      }
    }
  }
}

// Whether the node multiplies by weights that are packed here.
bool is_packed(const xnn_node& node, const LayerProduct& product) {
  if (node.type == xnn_node_type_fully_connected) {
    return product.columns != 0 && (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) == 0;
  }
  // Of single channels it makes other operators.
  return node.type == xnn_node_type_convolution_2d && (node.flags & XNN_FLAG_DEPTHWISE_CONVOLUTION) == 0 &&
         product.columns != 0 && (product.columns != 1 || product.channels != 1);
}

// XNNPACK's function for windows of several pixels.
WindowsPacker windows_of(const PackedType& type, const xnn_gemm_config& config) {
  switch (type.input) {
    case xnn_datatype_fp32:
      return windows_function(&xnn_pack_f32_conv_goki_w);
    case xnn_datatype_fp16:
      return type.stored == sizeof(float) ? windows_function(&xnn_pack_f32_to_f16_conv_goki_w)
                                          : windows_function(&xnn_pack_f16_conv_goki_w);
    case xnn_datatype_qint8:
      return config.pack_igemm_goki;
    default:  // XNNPACK does not read the table for convolutions whose input is quantized at run time
      return windows_function(&xnn_pack_qs8_conv_goki_w);
  }
}

// XNNPACK has kernels of two columns for layers that are narrower than a panel.
bool has_narrow_kernels() {
  const xnn_gemm_config* narrow = xnn_init_f32_gemm_nr2_config();
  return narrow != nullptr && narrow->minmax.gemm[narrow->mr - 1].function[XNN_UARCH_DEFAULT] != nullptr;
}

void find_functions(const xnn_gemm_config& config, LayerPacking* layer) {
  const PanelSizes& sizes = layer->sizes;
  const PackedType& type = *sizes.type;
  const bool one_by_one = sizes.kr * sizes.sr == 1;
  const bool floats = type.element > 1;
  // XNNPACK's vectors pack eight bytes of a column together, where it has them.
  const bool quick = sizes.pixels == 1 && config.pack_gemm_goi != rows_function(&xnn_pack_qs8_gemm_goi_w) &&
                     config.pack_gemm_goi != rows_function(&xnn_pack_qs8_to_qu8_gemm_goi_w);
  if (floats && one_by_one && float_tiles() != nullptr) {
    layer->rows =
        type.stored == type.element ? pack_rows_of(type.filter) : rows_function(&pack_goi<float, Half>);
    layer->writes_all = true;
  } else if (!floats && sizes.sr == 1 && (sizes.kr == 4 || (sizes.kr == kEight && !quick))) {
    // Some kernels take the sign from the pixels: their sums are of pixels that are 128 more.
    const bool shifted = type.input == xnn_datatype_qint8 &&
                         config.pack_igemm_goki == windows_function(&xnn_pack_qs8_to_qu8_conv_goki_w);
    layer->bytes_zero = layer->params.input_zero_point + (shifted ? 128 : 0);
    layer->writes_all = true;
  } else if (sizes.pixels > 1 && !(floats && one_by_one)) {
    layer->windows = windows_of(type, config);
  } else {
    layer->rows =
        type.stored == type.element ? config.pack_gemm_goi : rows_function(&xnn_pack_f32_to_f16_gemm_goi_w);
  }
}

// Four-bit weights that have a scale for each block of the depth.
struct Int4Packing {
  std::size_t columns;
  std::size_t depth;
  std::size_t block;
  std::size_t panel;
  std::size_t kr;
  const std::uint8_t* weights;
  const std::uint16_t* scales;  // bfloat16, one for each block of each column
  const float* bias;            // nullptr: none
  std::uint8_t* packed;

  std::size_t count() const { return (columns + panel - 1) / panel; }
  std::size_t panel_bytes() const {
    return panel * (2 * sizeof(float) + depth / 2 + depth / block * sizeof(std::uint16_t));
  }
};

float bfloat16_of(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

using Bytes16 [[gnu::vector_size(16)]] = std::uint8_t;

// Of numbers below 16.
std::int32_t int4_sum(Bytes16 numbers) {
  std::uint64_t halves[2];
  std::memcpy(halves, &numbers, sizeof(halves));
  return static_cast<std::int32_t>((halves[0] + halves[1]) * 0x0101010101010101U >> 56);
}

// A column's next 32 weights: in each byte one, and the one kTogether behind it. `sums`: of sixteen each.
template <std::size_t kTogether>
void pack_int4_unit(const std::uint8_t* from, std::uint8_t* to, std::size_t step, std::int32_t (&sums)[2]) {
  Bytes16 both;
  std::memcpy(&both, from, sizeof(both));
  const Bytes16 even = both & 0x0f;
  const Bytes16 odd = both >> 4;
  const Bytes16 first =
      __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const Bytes16 second =
      __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  Bytes16 low;
  Bytes16 high;
  if constexpr (kTogether == kInt4Depth) {
    low = __builtin_shufflevector(first, second, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    high = __builtin_shufflevector(first, second, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  } else {
    low = __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    high =
        __builtin_shufflevector(first, second, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  const Bytes16 packed = (low | high << 4) ^ 0x88;
  std::uint8_t bytes[sizeof(packed)];
  std::memcpy(bytes, &packed, sizeof(packed));
  for (std::size_t at = 0; at < sizeof(bytes); at += kTogether, to += step) {
    std::memcpy(to, bytes + at, kTogether);
  }
  sums[0] = int4_sum(first);
  sums[1] = int4_sum(second);
}

template <std::size_t kTogether>
void pack_int4_panel(const Int4Packing& layer, std::size_t first, std::uint8_t* packed) {
  const std::size_t columns = std::min(layer.panel, layer.columns - first);
  const std::size_t blocks = layer.depth / layer.block;
  float starts[kInt4Columns] = {};
  std::memset(packed, 0, columns == layer.panel ? 0 : layer.panel_bytes());
  std::uint8_t* to = packed + layer.panel * sizeof(float);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::uint8_t* from = layer.weights + (first * layer.depth + block * layer.block) / 2;
    for (std::size_t k = 0; k < layer.block; k += kInt4Unit, to += layer.panel * kInt4Unit / 2) {
      for (std::size_t n = 0; n < columns; ++n) {
        const float scale = bfloat16_of(layer.scales[(first + n) * blocks + block]);
        std::int32_t sums[2];
        pack_int4_unit<kTogether>(from + (n * layer.depth + k) / 2, to + n * kTogether,
                                  layer.panel * kTogether, sums);
        for (const std::int32_t sum : sums) {
          starts[n] = starts[n] - static_cast<float>(sum - 8 * static_cast<int>(kInt4Unit / 2)) * scale;
        }
      }
    }
    // Kernels multiply by sixteen times the weight, which saves them a shift.
    for (std::size_t n = 0; n < columns; ++n) {
      const float scale = bfloat16_of(layer.scales[(first + n) * blocks + block]) / 16;
      std::uint32_t bits;
      std::memcpy(&bits, &scale, sizeof(bits));
      const auto upper = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(to + n * sizeof(upper), &upper, sizeof(upper));
    }
    to += layer.panel * sizeof(std::uint16_t);
  }
  std::memcpy(packed, starts, columns * sizeof(float));
  std::memset(to, 0, columns * sizeof(float));
  if (layer.bias != nullptr) {
    std::memcpy(to, layer.bias + first, columns * sizeof(float));
  }
}

void pack_int4_panels(void* context, std::size_t first, std::size_t count) {
  const auto& layer = *static_cast<const Int4Packing*>(context);
  const auto pack = layer.kr == kInt4Depth ? &pack_int4_panel<kInt4Depth> : &pack_int4_panel<8>;
  for (std::size_t at = first; at < first + count; ++at) {
    pack(layer, at * layer.panel, layer.packed + at * layer.panel_bytes());
  }
}

Packer int4_packer(const xnn_node& node, const xnn_value& filter, const xnn_value* bias,
                   const xnn_gemm_config* config, pthreadpool_t threads) {
  if (config == nullptr || config->pack_weights_and_biases != nullptr || filter.shape.num_dims != 2 ||
      (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0) {
    return {};
  }
  Int4Packing layer = {filter.shape.dim[0],
                       filter.shape.dim[1],
                       filter.quantization.block_size,
                       config->nr,
                       std::size_t{1} << config->log2_kr,
                       static_cast<const std::uint8_t*>(filter.data),
                       reinterpret_cast<const std::uint16_t*>(filter.quantization.blockwise_scale),
                       bias == nullptr ? nullptr : static_cast<const float*>(bias->data),
                       nullptr};
  if ((layer.kr != kInt4Depth && layer.kr != 8) || config->log2_sr != 0 || layer.panel > kInt4Columns ||
      layer.block == 0 || layer.block % kInt4Unit != 0 || layer.depth % layer.block != 0) {
    return {};
  }
  return {filter.data, layer.bias, layer.count() * layer.panel_bytes(), [=](std::uint8_t* packed) mutable {
            layer.packed = packed;
            pthreadpool_parallelize_1d_tile_1d(threads, &pack_int4_panels, &layer, layer.count(), 2, 0);
          }};
}

}  // namespace

xnn_packw_gemm_goi_ukernel_fn pack_rows_of(xnn_datatype type) {
  return type == xnn_datatype_fp32 ? rows_function(&pack_goi<float, float>)
                                   : rows_function(&pack_goi<Half, Half>);
}

xnn_packw_gemm_gio_ukernel_fn pack_columns_of(xnn_datatype type) {
  return type == xnn_datatype_fp32 ? reinterpret_cast<xnn_packw_gemm_gio_ukernel_fn>(&pack_gio<float>)
                                   : reinterpret_cast<xnn_packw_gemm_gio_ukernel_fn>(&pack_gio<Half>);
}

Packer weights_packer(const xnn_node& node, const xnn_value* values, pthreadpool_t threads) {
  if (node.num_inputs < 2 || node.num_outputs != 1) {
    return {};
  }
  const xnn_value& input = values[node.inputs[0]];
  const xnn_value& filter = values[node.inputs[1]];
  const xnn_value& output = values[node.outputs[0]];
  const xnn_value* bias = node.num_inputs > 2 ? &values[node.inputs[2]] : nullptr;
  if (filter.data == nullptr || (bias != nullptr && bias->data == nullptr) ||
      output.layout != xnn_layout_type_nhwc) {
    return {};
  }
  if (node.type == xnn_node_type_fully_connected && input.datatype == xnn_datatype_qdint8 &&
      filter.datatype == xnn_datatype_qbint4) {
    return int4_packer(node, filter, bias,
                       output.datatype == xnn_datatype_fp32 ? xnn_init_qd8_f32_qb4w_gemm_config()
                                                            : xnn_init_qd8_f16_qb4w_gemm_config(),
                       threads);
  }
  const PackedType* type =
      std::find_if(std::begin(kPackedTypes), std::end(kPackedTypes), [&](const PackedType& one) {
        return one.input == input.datatype && one.filter == filter.datatype && one.output == output.datatype;
      });
  LayerPacking layer;
  PanelSizes& sizes = layer.sizes;
  sizes = {product_of(node, values)};
  const xnn_gemm_config* config = type == std::end(kPackedTypes) ? nullptr : type->config();
  if (config == nullptr || !is_packed(node, sizes) ||
      (type->element == sizeof(float) && sizes.columns < config->nr && has_narrow_kernels()) ||
      (node.type == xnn_node_type_fully_connected && config->pack_weights_and_biases != nullptr) ||
      (type->element > 1 && bias != nullptr && bias->datatype != filter.datatype) ||
      (type->element == 1 && filter.quantization.channelwise_scale == nullptr)) {
    return {};
  }
  sizes.panel = config->nr;
  sizes.kr = std::size_t{1} << config->log2_kr;
  sizes.sr = std::size_t{1} << config->log2_sr;
  sizes.type = type;
  const void* biases = bias == nullptr ? nullptr : bias->data;
  layer.weights = static_cast<const std::uint8_t*>(filter.data);
  if (type->element == 1) {
    layer.scales = filter.quantization.channelwise_scale;
  }
  if (type->input == xnn_datatype_qdint8) {
    // Sums are multiplied by each row's zero point, and begin without the bias.
    layer.params.input_zero_point = 1;
    layer.offsets = static_cast<const float*>(biases);
    biases = nullptr;
  } else if (type->input == xnn_datatype_qint8) {
    layer.params.input_zero_point = static_cast<std::int8_t>(input.quantization.zero_point);
    layer.input_scale = input.quantization.scale;
    layer.output_scale = output.quantization.scale;
  }
  layer.bias = static_cast<const std::uint8_t*>(biases);
  find_functions(*config, &layer);
  const std::size_t size = sizes.groups * sizes.count() * sizes.panel_bytes();
  const std::size_t tasks = kTasksPerThread * pthreadpool_get_threads_count(threads);
  const std::size_t together = std::max<std::size_t>(sizes.groups * sizes.count() / tasks, 1);
  return {filter.data, biases, size, [=](std::uint8_t* packed) mutable {
            layer.packed = packed;
            pthreadpool_parallelize_2d_tile_1d(size < kLeastSplit ? nullptr : threads, &pack_panels, &layer,
                                               layer.sizes.groups, layer.sizes.count(), together, 0);
          }};
}

}  // namespace slipway::lean
