// What the files that call KleidiAI have in common; one of them a kind of arithmetic.
#pragma once

#include <pthreadpool.h>
#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lean/kleidiai/layer.h"

namespace slipway::lean {

bool has_dynamic8(const MatrixLayer& layer);
bool has_half(const MatrixLayer& layer);
bool has_single(const MatrixLayer& layer);
bool has_static8(const MatrixLayer& layer);

using KaiMade = Result<std::unique_ptr<KaiLayer>>;
KaiMade make_dynamic8(const MatrixLayer& layer, PackedWeights& weights);
KaiMade make_half(const MatrixLayer& layer, PackedWeights& weights);
KaiMade make_single(const MatrixLayer& layer, PackedWeights& weights);
KaiMade make_static8(const MatrixLayer& layer, PackedWeights& weights);

// The first of `ways` whose processor feature is there, so the best where they are in that order; or none.
template <typename Way, std::size_t N>
const Way* best_of(const Way (&ways)[N]) {
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  const Way* found = std::find_if(
      ways, ways + N, [&](const Way& way) { return hardware != nullptr && hardware->*way.needs; });
  return found == ways + N ? nullptr : found;
}

// A layer with its weights packed.
template <typename Layer, typename Way>
KaiMade make_packed(const MatrixLayer& layer, const Way& way, PackedWeights& weights) {
  auto made = std::make_unique<Layer>(layer, way);
  const Status packed = made->pack(weights);
  return packed.ok() ? KaiMade(std::move(made)) : packed;
}

// Columns to give a thread at a time, a multiple of `step`: some tiles for each thread, so that a slow one
// holds nobody up for long.
std::size_t tile_columns(std::size_t outputs, std::size_t step, std::size_t tiles_of_rows,
                         pthreadpool_t threads);
std::size_t divided_up(std::size_t number, std::size_t by);

// "Convolution (NHWC, PF16) GEMM", as XNNPACK would name it.
std::string node_name(const MatrixLayer& layer, const char* types);

// What all kernels for rows in one piece have.
struct KaiKernel {
  const char* name;
  const char* feature;
  std::size_t (*m_step)();
  std::size_t (*n_step)();
  std::size_t (*rhs_offset)(std::size_t column, std::size_t depth);
  std::size_t (*dst_offset)(std::size_t row, std::size_t column, std::size_t stride);
  // Of packed rows; nullptr for a kernel that takes rows as they are.
  std::size_t (*mr)();
  std::size_t (*lhs_offset)(std::size_t row, std::size_t depth);
};

// The same by KleidiAI's names; `prefix` is that of the family: matmul_clamp_f16_.
#define SLIPWAY_COMMON(prefix, variant, feature)                                                            \
  "kai_run_" #prefix #variant, feature, kai_get_m_step_##prefix##variant, kai_get_n_step_##prefix##variant, \
      kai_get_rhs_packed_offset_##prefix##variant, kai_get_dst_offset_##prefix##variant
#define SLIPWAY_PACKED(prefix, variant, feature)                           \
  {SLIPWAY_COMMON(prefix, variant, feature), kai_get_mr_##prefix##variant, \
   kai_get_lhs_packed_offset_##prefix##variant}
#define SLIPWAY_PLAIN(prefix, variant, feature) {SLIPWAY_COMMON(prefix, variant, feature), nullptr, nullptr}

// Denormals as XNNPACK treats them.
inline constexpr std::uint32_t kPoolFlags = PTHREADPOOL_FLAG_DISABLE_DENORMALS;

// Convolutions on KleidiAI's kernels for rows that are not in one piece: a row is a window of an image.

// How rows are gathered and packed, from one pointer a pixel of a window. `chunks`: pixels, `length`:
// channels.
struct Gathering {
  std::size_t (*m_step)();
  std::size_t (*offset)(std::size_t row, std::size_t chunks, std::size_t length);
  std::size_t (*size)(std::size_t rows, std::size_t chunks, std::size_t length);
  void (*run)(std::size_t rows, std::size_t chunks, std::size_t length, const void* const* pointers,
              std::size_t pointer_offset, const void* padding, void* packed);
};

#define SLIPWAY_GATHERING(name) \
  {kai_get_m_step_##name, kai_get_lhs_packed_offset_##name, kai_get_lhs_packed_size_##name, kai_run_##name}

struct WindowRun {
  const Gathering& gathering;
  const MatrixLayer& layer;
  const LayerShape& shape;
  const std::uint8_t* input = nullptr;
  std::size_t element = 0;        // bytes
  const void* padding = nullptr;  // a pixel
  std::size_t column_step = 0;    // of the kernel
  // Computes `rows` rows from `row` on, which are packed, and `columns` columns.
  std::function<void(std::size_t row, const std::uint8_t* packed, std::size_t rows, std::size_t column,
                     std::size_t columns)>
      multiply;
};

// Packs some rows at a time into `packed`, for all rows of a large image are many times the image.
void run_windows(const WindowRun& run, std::vector<std::uint8_t>* packed, pthreadpool_t threads);

// Pixels of a window.
std::size_t chunks_of(const MatrixLayer& layer);

}  // namespace slipway::lean
