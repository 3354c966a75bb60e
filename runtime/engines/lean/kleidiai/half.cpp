// Layers all in float16 (pf16). On SME and SME2 sums are float32; on Neon they are float16, as in XNNPACK's
// own kernels.
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p2vlx2b_1x16vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p2vlx2b_1x8vl_sme_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p32x1b_6x32_neon_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16p_f16p/kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16p_f16p/kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/pack/kai_lhs_pack_x16p2vlx2_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_x16p2vlx2b_x16_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_x16p32x1b_x16_x16_neon.h>

#include <algorithm>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {
namespace {

using Half = __fp16;

struct Kernel {
  const char* name;
  const char* feature;
  std::size_t (*m_step)();
  std::size_t (*n_step)();
  std::size_t (*rhs_offset)(std::size_t column, std::size_t depth);
  std::size_t (*dst_offset)(std::size_t row, std::size_t column, std::size_t stride);
  // Of packed rows.
  std::size_t (*mr)();
  std::size_t (*lhs_offset)(std::size_t row, std::size_t depth);
  void (*run_packed)(std::size_t m, std::size_t n, std::size_t k, const void* lhs, const void* rhs, void* dst,
                     std::size_t row_stride, std::size_t column_stride, float min, float max);
  // Of rows as they are; the other three are nullptr then.
  void (*run)(std::size_t m, std::size_t n, std::size_t k, const void* lhs, std::size_t lhs_stride,
              const void* rhs, void* dst, std::size_t row_stride, std::size_t column_stride, float min,
              float max);
};

#define COMMON(variant, feature)                                                                       \
  "kai_run_matmul_clamp_f16_" #variant, feature, kai_get_m_step_matmul_clamp_f16_##variant,            \
      kai_get_n_step_matmul_clamp_f16_##variant, kai_get_rhs_packed_offset_matmul_clamp_f16_##variant, \
      kai_get_dst_offset_matmul_clamp_f16_##variant
#define PACKED(variant, feature)                                    \
  {COMMON(variant, feature), kai_get_mr_matmul_clamp_f16_##variant, \
   kai_get_lhs_packed_offset_matmul_clamp_f16_##variant, kai_run_matmul_clamp_f16_##variant, nullptr}
#define PLAIN(variant, feature) \
  {COMMON(variant, feature), nullptr, nullptr, nullptr, kai_run_matmul_clamp_f16_##variant}

// How weights are packed, a block of outputs at a time.
struct Packing {
  std::size_t (*n_step)();
  std::size_t (*offset)(std::size_t column, std::size_t depth);
  std::size_t (*size)(std::size_t columns, std::size_t depth);
  std::size_t kr;
  void (*run)(std::size_t groups, std::size_t n, std::size_t k, std::size_t nr, std::size_t kr,
              std::size_t sr, std::size_t stride, const void* rhs, const void* bias, const void* scale,
              void* packed, std::size_t extra, const void* params);
};

struct Way {
  std::uint32_t seed;  // tells its packed weights from others
  bool xnn_hardware_config::* needs;
  Kernel many;
  Kernel one;
  Packing packing;
};

#define PACKING(name, kr)                                                                       \
  {kai_get_n_step_##name, kai_get_rhs_packed_offset_##name, kai_get_rhs_packed_size_##name, kr, \
   kai_run_##name}

// The best first. Both kernels of one line read weights packed in the same way.
const Way kWays[] = {
    {0x4B410011, &xnn_hardware_config::use_arm_sme2,
     PACKED(f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa, "neonsme2"),
     PLAIN(f16_f16p2vlx2b_1x16vl_sme2_dot, "neonsme2"), PACKING(rhs_pack_kxn_x16p2vlx2b_x16_x16_sme, 2)},
    {0x4B410012, &xnn_hardware_config::use_arm_sme, PACKED(f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa, "neonsme"),
     PLAIN(f16_f16p2vlx2b_1x8vl_sme_mla, "neonsme"), PACKING(rhs_pack_kxn_x16p2vlx2b_x16_x16_sme, 2)},
    {0x4B410013, &xnn_hardware_config::use_arm_neon_fp16_arith,
     PLAIN(f16_f16p32x1b_6x32_neon_mla, "neonfp16arith"), PLAIN(f16_f16p32x1b_6x32_neon_mla, "neonfp16arith"),
     PACKING(rhs_pack_kxn_x16p32x1b_x16_x16_neon, 1)},
};
#undef PACKING
#undef PLAIN
#undef PACKED
#undef COMMON

struct Work {
  const Kernel& kernel;
  const MatrixLayer& layer;
  const Half* input;
  std::uint8_t* rows;
  const std::uint8_t* weights;
  Half* output;
};

constexpr std::size_t kLhsKr = 2;  // of the packing for SME

void pack_rows(void* context, std::size_t row, std::size_t count) {
  const auto& work = *static_cast<const Work*>(context);
  const std::size_t depth = work.layer.depth;
  const std::size_t mr = work.kernel.mr();
  const std::size_t packed_offset =
      kai_get_lhs_packed_offset_lhs_pack_x16p2vlx2_x16_sme(row, depth, mr, kLhsKr, 1);
  kai_run_lhs_pack_x16p2vlx2_x16_sme(count, depth, mr, kLhsKr, 1, 0, work.input + row * depth,
                                     depth * sizeof(Half), work.rows + packed_offset);
}

void multiply(void* context, std::size_t row, std::size_t column, std::size_t rows, std::size_t columns) {
  const auto& work = *static_cast<const Work*>(context);
  const Kernel& kernel = work.kernel;
  const MatrixLayer& layer = work.layer;
  const std::size_t stride = layer.outputs * sizeof(Half);
  void* output = reinterpret_cast<std::uint8_t*>(work.output) + kernel.dst_offset(row, column, stride);
  const std::uint8_t* weights = work.weights + kernel.rhs_offset(column, layer.depth);
  if (kernel.run_packed != nullptr) {
    kernel.run_packed(rows, columns, layer.depth, work.rows + kernel.lhs_offset(row, layer.depth), weights,
                      output, stride, sizeof(Half), layer.min, layer.max);
  } else {
    kernel.run(rows, columns, layer.depth, work.input + row * layer.depth, layer.depth * sizeof(Half),
               weights, output, stride, sizeof(Half), layer.min, layer.max);
  }
}

class HalfLayer : public KaiLayer {
 public:
  HalfLayer(const MatrixLayer& layer, const Way& way)
      : KaiLayer(layer), way_(way), size_(way.packing.size(layer.outputs, layer.depth)) {}

  Status pack(PackedWeights& weights);
  void run(const void* input, std::size_t rows, void* output, pthreadpool_t threads) override;
  KernelUse use(std::size_t rows) const override {
    const Kernel& kernel = kernel_for(rows);
    return {node_name(layer_.operation, "PF16"), kernel.name, "KleidiAI", kernel.feature};
  }

 private:
  const Kernel& kernel_for(std::size_t rows) const {
    return rows / layer_.batches == 1 ? way_.one : way_.many;
  }
  Half weight(std::size_t batch, std::size_t output, std::size_t k) const;
  Half bias(std::size_t output) const;
  void pack_batch(std::size_t batch, std::uint8_t* memory) const;

  const Way& way_;
  std::size_t size_;  // bytes of a batch's packed weights
};

Half HalfLayer::weight(std::size_t batch, std::size_t output, std::size_t k) const {
  const std::size_t at =
      batch * layer_.depth * layer_.outputs + output * layer_.along_outputs + k * layer_.along_depth;
  return layer_.wide_weights ? static_cast<Half>(static_cast<const float*>(layer_.weights)[at])
                             : static_cast<const Half*>(layer_.weights)[at];
}

Half HalfLayer::bias(std::size_t output) const {
  if (layer_.bias == nullptr) {
    return 0;
  }
  return layer_.wide_bias ? static_cast<Half>(static_cast<const float*>(layer_.bias)[output])
                          : static_cast<const Half*>(layer_.bias)[output];
}

void HalfLayer::pack_batch(std::size_t batch, std::uint8_t* memory) const {
  const Packing& packing = way_.packing;
  const std::size_t step = packing.n_step();
  std::vector<Half> block(layer_.depth * step);
  std::vector<Half> biases(step);
  for (std::size_t first = 0; first < layer_.outputs; first += step) {
    const std::size_t count = std::min(step, layer_.outputs - first);
    for (std::size_t n = 0; n < count; ++n) {
      biases[n] = bias(first + n);
      for (std::size_t k = 0; k < layer_.depth; ++k) {
        block[k * count + n] = weight(batch, first + n, k);
      }
    }
    packing.run(1, count, layer_.depth, step, packing.kr, 1, count * sizeof(Half), block.data(),
                biases.data(), nullptr, memory + packing.offset(first, layer_.depth), 0, nullptr);
  }
}

Status HalfLayer::pack(PackedWeights& weights) {
  return pack_once(way_.seed, way_.packing.n_step(), size_ * layer_.batches, weights,
                   [this](std::uint8_t* memory) {
                     for (std::size_t batch = 0; batch < layer_.batches; ++batch) {
                       pack_batch(batch, memory + batch * size_);
                     }
                   });
}

void HalfLayer::run(const void* input, std::size_t all_rows, void* output, pthreadpool_t threads) {
  const std::size_t rows = all_rows / layer_.batches;
  if (rows == 0) {
    return;
  }
  const Kernel& kernel = kernel_for(all_rows);
  Work work{kernel, layer_, static_cast<const Half*>(input), nullptr, packed_, static_cast<Half*>(output)};
  if (kernel.run_packed != nullptr) {
    rows_.resize(
        kai_get_lhs_packed_size_lhs_pack_x16p2vlx2_x16_sme(rows, layer_.depth, kernel.mr(), kLhsKr, 1));
    work.rows = rows_.data();
  }
  const std::size_t columns =
      tile_columns(layer_.outputs, kernel.n_step(), divided_up(rows, kernel.m_step()), threads);
  for (std::size_t batch = 0; batch < layer_.batches; ++batch) {
    if (kernel.run_packed != nullptr) {
      pthreadpool_parallelize_1d_tile_1d(threads, pack_rows, &work, rows, kernel.mr(), kPoolFlags);
    }
    pthreadpool_parallelize_2d_tile_2d(threads, multiply, &work, rows, layer_.outputs, kernel.m_step(),
                                       columns, kPoolFlags);
    work.input += rows * layer_.depth;
    work.output += rows * layer_.outputs;
    work.weights += size_;
  }
}

}  // namespace

bool has_half() {
  return best_of(kWays) != nullptr;
}

KaiMade make_half(const MatrixLayer& layer, PackedWeights& weights) {
  return make_packed<HalfLayer>(layer, *best_of(kWays), weights);
}

}  // namespace slipway::lean
