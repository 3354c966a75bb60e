#include "lean/xnnpack/panel_packing.h"

#include <xnnpack/config.h>
#include <xnnpack/microfnptr.h>
#include <xnnpack/node-type.h>
#include <xnnpack/pack.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace slipway::lean {
namespace {

using RowsPacker = xnn_packw_gemm_goi_ukernel_fn;
using WindowsPacker = xnn_pack_conv_goki_w_fn;

// For less, waking the threads takes longer.
constexpr std::size_t kLeastSplit = std::size_t{256} * 1024;
constexpr std::size_t kTasksPerThread = 4;

// A type of product in XNNPACK's tables.
struct PackedType {
  const xnn_gemm_config* (*config)();
  std::size_t element;
  std::size_t bias;
};

constexpr std::size_t kFloatBytes = 4;
constexpr std::size_t kHalfBytes = 2;
constexpr std::array<PackedType, 5> kPackedTypes = {{
    {&xnn_init_f32_gemm_config, kFloatBytes, kFloatBytes},
    {&xnn_init_f16_gemm_config, kHalfBytes, kHalfBytes},
    {&xnn_init_qs8_qc8w_gemm_config, 1, sizeof(std::int32_t)},
    {&xnn_init_qd8_f32_qc8w_gemm_config, 1, sizeof(std::int32_t)},
    {&xnn_init_qd8_f16_qc8w_gemm_config, 1, sizeof(std::int32_t)},
}};

// Of the thread that makes operators: others may pack meanwhile what they compute with.
thread_local pthreadpool_t packing_threads = nullptr;

// What a function for 8 bits adds to the input's zero point; kTheirs: pack_bytes does not do what it does, or
// not faster.
using ZeroShift = std::int32_t;
constexpr ZeroShift kTheirs = -1;

// One of XNNPACK's functions.
struct TheirPacker {
  RowsPacker rows = nullptr;
  WindowsPacker windows = nullptr;
  ZeroShift shift = kTheirs;
  bool fills_panels = false;  // columns that are not there get what the last one has
};

struct Originals {
  TheirPacker rows;
  TheirPacker windows;
};
// Written once: operators of products with two inputs keep the function that the table had when they were
// made.
std::array<Originals, kPackedTypes.size()> packing_originals;

template <typename Function>
RowsPacker plain_function(Function* function) {
  return reinterpret_cast<RowsPacker>(function);
}

template <typename Function>
WindowsPacker plain_windows(Function* function) {
  return reinterpret_cast<WindowsPacker>(function);
}

const std::uint8_t* moved(const void* data, std::size_t bytes) {
  return data == nullptr ? nullptr : static_cast<const std::uint8_t*>(data) + bytes;
}

// What one call of XNNPACK's asks for.
struct PanelJob {
  PanelSizes sizes;
  TheirPacker packer;
  const void* weights;
  const void* bias;
  void* packed;
  const void* params;
};

// The type's parameters begin with it.
std::int32_t input_zero_of(const void* params) {
  return params == nullptr ? 0 : static_cast<const xnn_qs8_packing_params*>(params)->input_zero_point;
}

void pack_some_panels(void* context, std::size_t group, std::size_t first, std::size_t count) {
  const auto& job = *static_cast<const PanelJob*>(context);
  const PanelSizes& sizes = job.sizes;
  const std::size_t skipped = group * sizes.columns;
  std::uint8_t* packed = static_cast<std::uint8_t*>(job.packed) + group * sizes.count() * sizes.panel_bytes();
  if (job.packer.shift != kTheirs) {
    const std::size_t last = first + count;
    const std::size_t ours = job.packer.fills_panels ? std::min(last, sizes.columns / sizes.panel) : last;
    pack_bytes(sizes,
               reinterpret_cast<const std::int8_t*>(moved(job.weights, skipped * sizes.column_bytes())),
               reinterpret_cast<const std::int32_t*>(moved(job.bias, skipped * sizes.bias)),
               input_zero_of(job.params) + job.packer.shift, packed, first, ours);
    if (ours == last) {
      return;
    }
    first = ours;
    count = last - ours;
  }
  const std::size_t begin = first * sizes.panel;
  const std::size_t columns = std::min(sizes.columns - begin, count * sizes.panel);
  const std::uint8_t* weights = moved(job.weights, (skipped + begin) * sizes.column_bytes());
  const std::uint8_t* bias = moved(job.bias, (skipped + begin) * sizes.bias);
  packed += first * sizes.panel_bytes();
  if (job.packer.windows != nullptr) {
    job.packer.windows(1, columns, sizes.window, sizes.depth, sizes.panel, sizes.kr, sizes.sr, weights, bias,
                       nullptr, packed, sizes.panel_extra, job.params);
  } else {
    job.packer.rows(1, columns, sizes.depth, sizes.panel, sizes.kr, sizes.sr, weights, bias, nullptr, packed,
                    sizes.panel_extra, job.params);
  }
}

// False when one thread is as fast, with XNNPACK's function.
bool pack_by_all(PanelJob job) {
  const std::size_t threads = pthreadpool_get_threads_count(packing_threads);
  const std::size_t panels = job.sizes.groups * job.sizes.count();
  if (!packs_bytes(job.sizes)) {
    job.packer.shift = kTheirs;
  }
  if (packing_threads == nullptr || threads < 2 || panels < 2 ||
      panels * job.sizes.panel_bytes() < kLeastSplit) {
    for (std::size_t group = 0; job.packer.shift != kTheirs && group < job.sizes.groups; ++group) {
      pack_some_panels(&job, group, 0, job.sizes.count());
    }
    return job.packer.shift != kTheirs;
  }
  const std::size_t tile = std::max(panels / (kTasksPerThread * threads), std::size_t{1});
  pthreadpool_parallelize_2d_tile_1d(packing_threads, &pack_some_panels, &job, job.sizes.groups,
                                     job.sizes.count(), tile, 0);
  return true;
}

template <std::size_t kType>
void pack_rows_of(std::size_t groups, std::size_t columns, std::size_t depth, std::size_t panel,
                  std::size_t kr, std::size_t sr, const void* weights, const void* bias, const void* scale,
                  void* packed, std::size_t extra, const void* params) {
  const PackedType& type = kPackedTypes[kType];
  const TheirPacker& theirs = packing_originals[kType].rows;
  const PanelSizes sizes = {groups, columns, 1, depth, panel, kr, sr, type.element, type.bias, extra};
  if (scale != nullptr || !pack_by_all({sizes, theirs, weights, bias, packed, params})) {
    theirs.rows(groups, columns, depth, panel, kr, sr, weights, bias, scale, packed, extra, params);
  }
}

template <std::size_t kType>
void pack_windows_of(std::size_t groups, std::size_t columns, std::size_t window, std::size_t depth,
                     std::size_t panel, std::size_t kr, std::size_t sr, const void* weights, const void* bias,
                     const void* scale, void* packed, std::size_t extra, const void* params) {
  const PackedType& type = kPackedTypes[kType];
  const TheirPacker& theirs = packing_originals[kType].windows;
  const PanelSizes sizes = {groups, columns, window, depth, panel, kr, sr, type.element, type.bias, extra};
  if (scale != nullptr || !pack_by_all({sizes, theirs, weights, bias, packed, params})) {
    theirs.windows(groups, columns, window, depth, panel, kr, sr, weights, bias, scale, packed, extra,
                   params);
  }
}

// A few columns packed by the function and by pack_bytes, which tell what the function adds.
ZeroShift compared(const PanelSizes& sizes, const TheirPacker& packer) {
  constexpr std::size_t kLine = 64;
  const xnn_qs8_packing_params params = {5};
  std::vector<std::int8_t> weights(sizes.columns * sizes.column_bytes());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<std::int8_t>(i * 89 % 256 - 128);
  }
  std::vector<std::int32_t> bias(sizes.columns);
  std::iota(bias.begin(), bias.end(), -3);
  const std::size_t bytes = sizes.panel_bytes();
  struct alignas(kLine) CacheLine {  // vector kernels write whole ones
    std::uint8_t bytes[kLine];
  };
  std::vector<CacheLine> theirs(bytes / kLine + 2);
  PanelJob job = {sizes, packer, weights.data(), bias.data(), theirs.data(), &params};
  pack_some_panels(&job, 0, 0, 1);
  for (const ZeroShift shift : {0, 128}) {
    std::vector<CacheLine> ours(theirs.size());
    job.packed = ours.data();
    job.packer.shift = shift;
    pack_some_panels(&job, 0, 0, 1);
    if (std::memcmp(ours.data(), theirs.data(), bytes) == 0) {
      return shift;
    }
  }
  return kTheirs;
}

// For XNNPACK's plain loops, which its tables have where no vector kernel packs.
void find_shifts(const PackedType& type, const xnn_gemm_config& config, Originals* originals) {
  PanelSizes sizes;
  sizes.columns = sizes.panel = config.nr;
  sizes.kr = std::size_t{1} << config.log2_kr;
  sizes.sr = std::size_t{1} << config.log2_sr;
  sizes.depth = 2 * sizes.kr + 3;
  sizes.element = type.element;
  sizes.bias = type.bias;
  if (!packs_bytes(sizes)) {
    return;
  }
  TheirPacker& rows = originals->rows;
  rows.fills_panels = rows.rows != plain_function(&xnn_pack_qs8_gemm_goi_w) &&
                      rows.rows != plain_function(&xnn_pack_qs8_to_qu8_gemm_goi_w);
  if (rows.rows != nullptr && (!rows.fills_panels || sizes.kr == 4)) {
    rows.shift = compared(sizes, rows);
  }
  sizes.window = 2;
  if (originals->windows.windows != nullptr) {
    originals->windows.shift = compared(sizes, originals->windows);
  }
}

template <std::size_t kType>
void take_over() {
  auto* config = const_cast<xnn_gemm_config*>(kPackedTypes[kType].config());
  if (config == nullptr) {
    return;
  }
  if (Originals& originals = packing_originals[kType]; originals.rows.rows == nullptr) {
    originals.rows.rows = config->pack_gemm_goi;
    originals.windows.windows = config->pack_igemm_goki;
    find_shifts(kPackedTypes[kType], *config, &originals);
  }
  if (config->pack_gemm_goi != nullptr) {
    config->pack_gemm_goi = &pack_rows_of<kType>;
  }
  if (config->pack_igemm_goki != nullptr) {
    config->pack_igemm_goki = &pack_windows_of<kType>;
  }
}

template <std::size_t kType>
void give_back() {
  auto* config = const_cast<xnn_gemm_config*>(kPackedTypes[kType].config());
  if (config != nullptr && packing_originals[kType].rows.rows != nullptr) {
    config->pack_gemm_goi = packing_originals[kType].rows.rows;
    config->pack_igemm_goki = packing_originals[kType].windows.windows;
  }
}

template <std::size_t... kTypes>
void take_over_all(std::index_sequence<kTypes...> /*types*/) {
  (take_over<kTypes>(), ...);
}

template <std::size_t... kTypes>
void give_back_all(std::index_sequence<kTypes...> /*types*/) {
  (give_back<kTypes>(), ...);
}

constexpr auto kAllTypes = std::make_index_sequence<kPackedTypes.size()>();

}  // namespace

namespace {

constexpr std::size_t kStaticType = 2;  // in kPackedTypes
constexpr std::size_t kDynamicType = 3;
constexpr std::size_t kDynamicHalfType = 4;

// A layer in 8 bits, and the numbers that XNNPACK puts behind each panel.
struct ScaledJob {
  PanelJob panels;
  const float* scales = nullptr;   // one for each column
  const float* offsets = nullptr;  // behind those; nullptr: none
  // 0: the scales as they are. Otherwise as XNNPACK requantizes.
  float input_scale = 0;
  float output_scale = 1;
};

// XNNPACK's functions for packing leave bytes alone that no weight belongs to, and so does pack_bytes with
// columns.
bool is_written_whole(const PanelJob& job, std::size_t panel) {
  return job.packer.shift != kTheirs && (panel + 1) * job.sizes.panel <= job.sizes.columns;
}

void pack_scaled_panels(void* context, std::size_t group, std::size_t first, std::size_t count) {
  const auto& job = *static_cast<const ScaledJob*>(context);
  const PanelSizes& sizes = job.panels.sizes;
  std::uint8_t* packed =
      static_cast<std::uint8_t*>(job.panels.packed) + (group * sizes.count() + first) * sizes.panel_bytes();
  const std::size_t row = sizes.panel * sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_written_whole(job.panels, first + i)) {
      std::memset(packed + i * sizes.panel_bytes(), 0, sizes.panel_bytes());
    }
  }
  pack_some_panels(const_cast<PanelJob*>(&job.panels), group, first, count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t* to = packed + (i + 1) * sizes.panel_bytes() - sizes.panel_extra;
    const std::size_t begin = (first + i) * sizes.panel;
    const std::size_t columns = std::min(sizes.panel, sizes.columns - begin);
    std::memset(to, 0, sizes.panel_extra);
    const float* scales = job.scales + group * sizes.columns + begin;
    for (std::size_t n = 0; n < columns; ++n) {
      const float scale = job.input_scale == 0 ? scales[n] : job.input_scale * scales[n] / job.output_scale;
      std::memcpy(to + n * sizeof(scale), &scale, sizeof(scale));
    }
    if (job.offsets != nullptr) {
      std::memcpy(to + row, job.offsets + group * sizes.columns + begin, columns * sizeof(float));
    }
  }
}

// What one of XNNPACK's plain loops adds to the input's zero point.
ZeroShift shift_of(RowsPacker rows) {
  if (rows == plain_function(&xnn_pack_qs8_gemm_goi_w)) {
    return 0;
  }
  return rows == plain_function(&xnn_pack_qs8_to_qu8_gemm_goi_w) ? 128 : kTheirs;
}
ZeroShift shift_of(WindowsPacker windows) {
  if (windows == plain_windows(&xnn_pack_qs8_conv_goki_w)) {
    return 0;
  }
  return windows == plain_windows(&xnn_pack_qs8_to_qu8_conv_goki_w) ? 128 : kTheirs;
}

template <std::size_t kType>
TheirPacker rows_packer(const xnn_gemm_config& config) {
  if (config.pack_gemm_goi == &pack_rows_of<kType>) {
    return packing_originals[kType].rows;
  }
  return {config.pack_gemm_goi, nullptr, shift_of(config.pack_gemm_goi), true};
}

template <std::size_t kType>
TheirPacker windows_packer(const xnn_gemm_config& config) {
  // XNNPACK does not read the table for convolutions whose input is quantized at run time.
  if (kType != kStaticType) {
    return {nullptr, plain_windows(&xnn_pack_qs8_conv_goki_w), 0};
  }
  if (config.pack_igemm_goki == &pack_windows_of<kType>) {
    return packing_originals[kType].windows;
  }
  return {nullptr, config.pack_igemm_goki, shift_of(config.pack_igemm_goki)};
}

template <std::size_t kType>
bool find_packer(const xnn_node& node, PanelSizes* sizes, TheirPacker* packer) {
  const xnn_gemm_config* config = kPackedTypes[kType].config();
  if (config == nullptr) {
    return false;
  }
  bool rows = true;
  if (node.type == xnn_node_type_convolution_2d) {
    const auto& params = node.params.convolution_2d;
    rows = sizes->window == 1 && params.subsampling_height == 1 && params.subsampling_width == 1 &&
           (params.input_padding_top | params.input_padding_right | params.input_padding_bottom |
            params.input_padding_left) == 0 &&
           kType == kStaticType;
  } else if (config->pack_weights_and_biases != nullptr) {
    return false;
  }
  *packer = rows ? rows_packer<kType>(*config) : windows_packer<kType>(*config);
  sizes->panel = config->nr;
  sizes->kr = std::size_t{1} << config->log2_kr;
  sizes->sr = std::size_t{1} << config->log2_sr;
  sizes->element = kPackedTypes[kType].element;
  sizes->bias = kPackedTypes[kType].bias;
  sizes->panel_extra = config->nr * sizeof(float) * (kType == kStaticType ? 1 : 2);
  if (!packs_bytes(*sizes)) {
    packer->shift = kTheirs;
  }
  return packer->rows != nullptr || packer->windows != nullptr;
}

// The sizes that the node itself has; false if it is no such layer.
bool find_sizes(const xnn_node& node, const xnn_value& filter, PanelSizes* sizes) {
  if (node.type == xnn_node_type_fully_connected) {
    sizes->columns = filter.shape.dim[0];
    sizes->depth = filter.shape.dim[1];
    return filter.shape.num_dims == 2 && (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) == 0;
  }
  if (node.type != xnn_node_type_convolution_2d || (node.flags & XNN_FLAG_DEPTHWISE_CONVOLUTION) != 0) {
    return false;
  }
  const auto& params = node.params.convolution_2d;
  sizes->groups = params.groups;
  sizes->columns = params.group_output_channels;
  sizes->window = std::size_t{params.kernel_height} * params.kernel_width;
  sizes->depth = params.group_input_channels;
  return sizes->columns != 1 || sizes->depth != 1;  // of single channels it makes other operators
}

bool find_packer(std::size_t type, const xnn_node& node, PanelSizes* sizes, TheirPacker* packer) {
  switch (type) {
    case kStaticType:
      return find_packer<kStaticType>(node, sizes, packer);
    case kDynamicType:
      return find_packer<kDynamicType>(node, sizes, packer);
    default:
      return find_packer<kDynamicHalfType>(node, sizes, packer);
  }
}

}  // namespace

Packer panel_packer(const xnn_node& node, const xnn_value* values) {
  if (node.num_inputs < 2 || node.num_outputs != 1) {
    return {};
  }
  const xnn_value& input = values[node.inputs[0]];
  const xnn_value& filter = values[node.inputs[1]];
  const xnn_value& output = values[node.outputs[0]];
  const xnn_value* bias = node.num_inputs > 2 ? &values[node.inputs[2]] : nullptr;
  std::size_t type = 0;
  if (input.datatype == xnn_datatype_qint8 && output.datatype == xnn_datatype_qint8) {
    type = kStaticType;
  } else if (input.datatype == xnn_datatype_qdint8 && output.datatype == xnn_datatype_fp32) {
    type = kDynamicType;
  } else if (input.datatype == xnn_datatype_qdint8 && output.datatype == xnn_datatype_fp16) {
    type = kDynamicHalfType;
  }
  PanelSizes sizes;
  TheirPacker packer;
  if (type == 0 || filter.datatype != xnn_datatype_qcint8 || filter.data == nullptr ||
      filter.quantization.channelwise_scale == nullptr || (bias != nullptr && bias->data == nullptr) ||
      output.layout != xnn_layout_type_nhwc || !find_sizes(node, filter, &sizes) ||
      !find_packer(type, node, &sizes, &packer)) {
    return {};
  }
  const bool dynamic = type != kStaticType;
  const void* biases = bias == nullptr ? nullptr : bias->data;
  const void* offsets = dynamic ? nullptr : biases;  // of the sums
  ScaledJob job = {{sizes, packer, filter.data, offsets, nullptr, nullptr},
                   filter.quantization.channelwise_scale,
                   dynamic ? static_cast<const float*>(biases) : nullptr};
  xnn_qs8_packing_params params = {1};
  if (!dynamic) {
    params.input_zero_point = static_cast<std::int8_t>(input.quantization.zero_point);
    job.input_scale = input.quantization.scale;
    job.output_scale = output.quantization.scale;
  }
  const auto pack = [=](std::uint8_t* packed) mutable {
    job.panels.packed = packed;
    job.panels.params = &params;
    const std::size_t panels = sizes.groups * sizes.count();
    const std::size_t threads = pthreadpool_get_threads_count(packing_threads);
    if (threads < 2 || panels * sizes.panel_bytes() < kLeastSplit) {
      for (std::size_t group = 0; group < sizes.groups; ++group) {
        pack_scaled_panels(&job, group, 0, sizes.count());
      }
      return;
    }
    pthreadpool_parallelize_2d_tile_1d(packing_threads, &pack_scaled_panels, &job, sizes.groups,
                                       sizes.count(),
                                       std::max(panels / (kTasksPerThread * threads), std::size_t{1}), 0);
  };
  return {filter.data, offsets, sizes.groups * sizes.count() * sizes.panel_bytes(), pack};
}

PanelPacking::PanelPacking(pthreadpool_t threads) {
  packing_threads = threads;
  take_over_all(kAllTypes);
}

PanelPacking::~PanelPacking() {
  give_back_all(kAllTypes);
  packing_threads = nullptr;
}

}  // namespace slipway::lean
