// KleidiAI's kernels as the layers call them: one table for each kind of arithmetic, the best kernels first.
#pragma once

#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lean/kleidiai/layer.h"

namespace slipway::lean {

// A kernel for rows in one piece.
struct KaiKernel {
  const char* name;
  const char* feature;
  std::size_t (*m_step)();
  std::size_t (*n_step)();
  std::size_t (*rhs_offset)(std::size_t column, std::size_t depth);
  std::size_t (*dst_offset)(std::size_t row, std::size_t column, std::size_t stride);
  // Of packed rows; nullptr for a kernel that takes rows as they are.
  std::size_t (*mr)();
  std::size_t (*kr)();
  std::size_t (*sr)();
  std::size_t (*lhs_offset)(std::size_t row, std::size_t depth);
  void (*run)(const MatrixLayer& layer, std::size_t m, std::size_t n, std::size_t k, const void* lhs,
              std::size_t lhs_stride, const void* rhs, void* dst, std::size_t stride);
};

// How rows are packed for it.
struct RowPacking {
  std::size_t (*offset)(std::size_t row, std::size_t depth, std::size_t mr, std::size_t kr, std::size_t sr);
  std::size_t (*size)(std::size_t rows, std::size_t depth, std::size_t mr, std::size_t kr, std::size_t sr);
  void (*run)(std::size_t m, std::size_t k, std::size_t mr, std::size_t kr, std::size_t sr, std::size_t first,
              const void* lhs, std::size_t stride, void* packed);
};

// How weights are packed, a block of outputs at a time.
struct WeightPacking {
  std::size_t (*n_step)();
  std::size_t (*offset)(std::size_t column, std::size_t depth);
  std::size_t (*size)(std::size_t columns, std::size_t depth);
  std::size_t kr;
  // Of floats; nullptr for others.
  void (*run)(std::size_t groups, std::size_t n, std::size_t k, std::size_t nr, std::size_t kr,
              std::size_t sr, std::size_t stride, const void* rhs, const void* bias, const void* scale,
              void* packed, std::size_t extra, const void* params);
};

// A kernel for rows that are windows of an image. They are gathered and packed from one pointer a pixel of a
// window; the weights of each pixel are padded by themselves. `chunks`: pixels, `length`: channels.
struct WindowKernel {
  const char* name;
  const char* feature;
  std::size_t (*n_step)();
  std::size_t (*dst_offset)(std::size_t row, std::size_t column, std::size_t stride);
  void (*run)(const MatrixLayer& layer, std::size_t m, std::size_t n, std::size_t chunks, const void* lhs,
              const void* rhs, void* dst, std::size_t stride);
  std::size_t (*rhs_offset)(std::size_t column, std::size_t chunks, std::size_t length);
  std::size_t (*rhs_size)(std::size_t columns, std::size_t chunks, std::size_t length);
  std::size_t (*m_step)();
  std::size_t (*lhs_offset)(std::size_t row, std::size_t chunks, std::size_t length);
  std::size_t (*lhs_size)(std::size_t rows, std::size_t chunks, std::size_t length);
  void (*gather)(std::size_t rows, std::size_t chunks, std::size_t length, const void* const* pointers,
                 std::size_t pointer_offset, const void* padding, void* packed);
};

// Kernels for processors that have a feature. Both for rows read weights packed in the same way.
struct KaiWay {
  bool xnn_hardware_config::* needs;
  std::uint32_t seed;         // tells its packed weights from others
  std::uint32_t window_seed;  // and those of its kernel for windows
  KaiKernel many;
  KaiKernel one;
  RowPacking rows;
  WeightPacking weights;
  const WindowKernel* windows;  // nullptr: none
  // Packs a batch's weights.
  void (*pack)(const MatrixLayer& layer, const KaiWay& way, std::size_t batch, std::uint8_t* memory);
  const char* types;    // as XNNPACK names the arithmetic
  std::size_t element;  // bytes of one of the input, and of the output
};

// The best for this processor of each kind of arithmetic; nullptr where there is none.
const KaiWay* dynamic8_way();
const KaiWay* half_way();
const KaiWay* single_way();
const KaiWay* static8_way();

template <std::size_t N>
const KaiWay* best_of(const KaiWay (&ways)[N]) {
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  const KaiWay* found = std::find_if(
      ways, ways + N, [&](const KaiWay& way) { return hardware != nullptr && hardware->*way.needs; });
  return found == ways + N ? nullptr : found;
}

// The same by KleidiAI's names: `prefix` is that of the family, matmul_clamp_f16_, and what follows runs one.
#define SLIPWAY_KERNEL(prefix, variant, feature)                                                            \
  "kai_run_" #prefix #variant, feature, kai_get_m_step_##prefix##variant, kai_get_n_step_##prefix##variant, \
      kai_get_rhs_packed_offset_##prefix##variant, kai_get_dst_offset_##prefix##variant
#define SLIPWAY_OF_PACKED(prefix, variant)                                                  \
  kai_get_mr_##prefix##variant, kai_get_kr_##prefix##variant, kai_get_sr_##prefix##variant, \
      kai_get_lhs_packed_offset_##prefix##variant
#define SLIPWAY_ROWS(name) {kai_get_lhs_packed_offset_##name, kai_get_lhs_packed_size_##name, kai_run_##name}
#define SLIPWAY_WINDOW(prefix, variant, feature) \
  "kai_run_" #prefix #variant, feature, kai_get_n_step_##prefix##variant, kai_get_dst_offset_##prefix##variant
#define SLIPWAY_GATHERING(name) \
  kai_get_m_step_##name, kai_get_lhs_packed_offset_##name, kai_get_lhs_packed_size_##name, kai_run_##name

// Pixels of a window.
inline std::size_t chunks_of(const MatrixLayer& layer) {
  return static_cast<std::size_t>(layer.down.kernel * layer.across.kernel);
}

// Calls f(first output, how many, their weights) for `step` outputs at a time: the weights of an element of
// the depth together. `weight`: that of an output and an element.
template <typename Element, typename Weight, typename F>
void each_block(const MatrixLayer& layer, std::size_t step, Weight weight, F f) {
  std::vector<Element> block(layer.depth * step);
  for (std::size_t first = 0; first < layer.outputs; first += step) {
    const std::size_t count = std::min(step, layer.outputs - first);
    for (std::size_t n = 0; n < count; ++n) {
      for (std::size_t k = 0; k < layer.depth; ++k) {
        block[k * count + n] = weight(first + n, k);
      }
    }
    f(first, count, block.data());
  }
}

}  // namespace slipway::lean
