#include "lean/xnnpack/panel_packing.h"

#include <xnnpack/config.h>
#include <xnnpack/microfnptr.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

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

struct Originals {
  RowsPacker rows = nullptr;
  WindowsPacker windows = nullptr;
};
// Written once: operators of products with two inputs keep the function that the table had when they were
// made.
std::array<Originals, kPackedTypes.size()> packing_originals;

const std::uint8_t* moved(const void* data, std::size_t bytes) {
  return data == nullptr ? nullptr : static_cast<const std::uint8_t*>(data) + bytes;
}

// What one call of XNNPACK's asks for.
struct PanelJob {
  PanelSizes sizes;
  Originals originals;  // one of the two
  const void* weights;
  const void* bias;
  void* packed;
  const void* params;
};

void pack_some_panels(void* context, std::size_t group, std::size_t first, std::size_t count) {
  const auto& job = *static_cast<const PanelJob*>(context);
  const PanelSizes& sizes = job.sizes;
  const std::size_t begin = first * sizes.panel;
  const std::size_t columns = std::min(sizes.columns - begin, count * sizes.panel);
  const std::size_t before = group * sizes.columns + begin;
  const std::uint8_t* weights = moved(job.weights, before * sizes.column_bytes());
  const std::uint8_t* bias = moved(job.bias, before * sizes.bias);
  std::uint8_t* packed =
      static_cast<std::uint8_t*>(job.packed) + (group * sizes.count() + first) * sizes.panel_bytes();
  if (job.originals.windows != nullptr) {
    job.originals.windows(1, columns, sizes.window, sizes.depth, sizes.panel, sizes.kr, sizes.sr, weights,
                          bias, nullptr, packed, sizes.panel_extra, job.params);
  } else {
    job.originals.rows(1, columns, sizes.depth, sizes.panel, sizes.kr, sizes.sr, weights, bias, nullptr,
                       packed, sizes.panel_extra, job.params);
  }
}

// False when one thread is as fast.
bool pack_by_all(PanelJob job) {
  const std::size_t threads = pthreadpool_get_threads_count(packing_threads);
  const std::size_t panels = job.sizes.groups * job.sizes.count();
  if (packing_threads == nullptr || threads < 2 || panels < 2 ||
      panels * job.sizes.panel_bytes() < kLeastSplit) {
    return false;
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
  const RowsPacker theirs = packing_originals[kType].rows;
  const PanelSizes sizes = {groups, columns, 1, depth, panel, kr, sr, type.element, type.bias, extra};
  if (scale != nullptr || !pack_by_all({sizes, {theirs, nullptr}, weights, bias, packed, params})) {
    theirs(groups, columns, depth, panel, kr, sr, weights, bias, scale, packed, extra, params);
  }
}

template <std::size_t kType>
void pack_windows_of(std::size_t groups, std::size_t columns, std::size_t window, std::size_t depth,
                     std::size_t panel, std::size_t kr, std::size_t sr, const void* weights, const void* bias,
                     const void* scale, void* packed, std::size_t extra, const void* params) {
  const PackedType& type = kPackedTypes[kType];
  const WindowsPacker theirs = packing_originals[kType].windows;
  const PanelSizes sizes = {groups, columns, window, depth, panel, kr, sr, type.element, type.bias, extra};
  if (scale != nullptr || !pack_by_all({sizes, {nullptr, theirs}, weights, bias, packed, params})) {
    theirs(groups, columns, window, depth, panel, kr, sr, weights, bias, scale, packed, extra, params);
  }
}

template <std::size_t kType>
void take_over() {
  auto* config = const_cast<xnn_gemm_config*>(kPackedTypes[kType].config());
  if (config == nullptr) {
    return;
  }
  if (Originals& originals = packing_originals[kType]; originals.rows == nullptr) {
    originals = {config->pack_gemm_goi, config->pack_igemm_goki};
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
  if (config != nullptr && packing_originals[kType].rows != nullptr) {
    config->pack_gemm_goi = packing_originals[kType].rows;
    config->pack_igemm_goki = packing_originals[kType].windows;
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

PanelPacking::PanelPacking(pthreadpool_t threads) {
  packing_threads = threads;
  take_over_all(kAllTypes);
}

PanelPacking::~PanelPacking() {
  give_back_all(kAllTypes);
  packing_threads = nullptr;
}

}  // namespace slipway::lean
