// Linear layers of float32 rows, each quantized by itself, and 8-bit weights (qp8_f32_qc8w).
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp_qsi8cxp_interface.h>
#include <kai/ukernels/matmul/pack/kai_lhs_quant_pack_qai8dxp_f32.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi8cxp_qsi8cx_neon.h>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {
namespace {

using Kernel = kai_matmul_clamp_f32_qai8dxp_qsi8cxp_ukernel;

struct Choice {
  const char* name;
  const char* feature;
  Kernel kernel;
};

struct Way {
  std::uint32_t seed;  // tells its packed weights from others
  bool xnn_hardware_config::* needs;
  Choice many;
  Choice one;
};

#define CHOICE(variant, feature)                                                                      \
  {                                                                                                   \
    "kai_run_matmul_clamp_f32_" #variant, feature, {                                                  \
      kai_get_m_step_matmul_clamp_f32_##variant, kai_get_n_step_matmul_clamp_f32_##variant,           \
          kai_get_mr_matmul_clamp_f32_##variant, kai_get_nr_matmul_clamp_f32_##variant,               \
          kai_get_kr_matmul_clamp_f32_##variant, kai_get_sr_matmul_clamp_f32_##variant,               \
          kai_get_lhs_packed_offset_matmul_clamp_f32_##variant,                                       \
          kai_get_rhs_packed_offset_matmul_clamp_f32_##variant,                                       \
          kai_get_dst_offset_matmul_clamp_f32_##variant, kai_get_dst_size_matmul_clamp_f32_##variant, \
          kai_run_matmul_clamp_f32_##variant                                                          \
    }                                                                                                 \
  }

// The best first. Both kernels of one line read weights packed in the same way.
const Way kWays[] = {
    {0x4B410001, &xnn_hardware_config::use_arm_sme2,
     CHOICE(qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa, "neonsme2"),
     CHOICE(qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot, "neonsme2")},
    {0x4B410002, &xnn_hardware_config::use_arm_neon_i8mm,
     CHOICE(qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm, "neoni8mm"),
     CHOICE(qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod, "neondot")},
    {0x4B410003, &xnn_hardware_config::use_arm_neon_dot,
     CHOICE(qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod, "neondot"),
     CHOICE(qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod, "neondot")},
};
#undef CHOICE

// What the kernels expect of activations that are quantized with a zero point of their own.
constexpr kai_rhs_pack_qsi8cx_params kParams = {1, 1.0F};

struct Work {
  const Kernel& kernel;
  const MatrixLayer& layer;
  const float* input;
  std::uint8_t* rows;
  const std::uint8_t* weights;
  float* output;
};

void pack_rows(void* context, std::size_t row, std::size_t count) {
  const auto& work = *static_cast<const Work*>(context);
  const Kernel& kernel = work.kernel;
  const std::size_t stride = work.layer.depth * sizeof(float);
  const std::size_t packed_offset = kai_get_lhs_packed_offset_lhs_quant_pack_qai8dxp_f32(
      row, work.layer.depth, kernel.get_mr(), kernel.get_kr(), kernel.get_sr());
  kai_run_lhs_quant_pack_qai8dxp_f32(count, work.layer.depth, kernel.get_mr(), kernel.get_kr(),
                                     kernel.get_sr(), 0, work.input + row * work.layer.depth, stride,
                                     work.rows + packed_offset);
}

void multiply(void* context, std::size_t row, std::size_t column, std::size_t rows, std::size_t columns) {
  const auto& work = *static_cast<const Work*>(context);
  const Kernel& kernel = work.kernel;
  const std::size_t depth = work.layer.depth;
  const std::size_t stride = work.layer.outputs * sizeof(float);
  auto* output = reinterpret_cast<std::uint8_t*>(work.output) + kernel.get_dst_offset(row, column, stride);
  kernel.run_matmul(rows, columns, depth, work.rows + kernel.get_lhs_packed_offset(row, depth),
                    work.weights + kernel.get_rhs_packed_offset(column, depth),
                    reinterpret_cast<float*>(output), stride, sizeof(float), work.layer.min, work.layer.max);
}

class Dynamic8 : public KaiLayer {
 public:
  Dynamic8(const MatrixLayer& layer, const Way& way) : KaiLayer(layer), way_(way) {}

  Status pack(PackedWeights& weights);
  void run(const LayerShape& shape, const void* input, const void* other, void* output,
           pthreadpool_t threads) override;
  KernelUse use(const LayerShape& shape) const override {
    const Choice& choice = shape.rows == 1 ? way_.one : way_.many;
    return {node_name(layer_, "QP8, F32, QC8W"), choice.name, "KleidiAI", choice.feature};
  }

 private:
  const Way& way_;
};

Status Dynamic8::pack(PackedWeights& weights) {
  const Kernel& kernel = way_.many.kernel;
  const std::size_t size = kai_get_rhs_packed_size_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(
      layer_.outputs, layer_.depth, kernel.get_nr(), kernel.get_kr(), kernel.get_sr());
  return pack_once(way_.seed, kernel.get_nr(), size, weights, [&](std::uint8_t* memory) {
    const std::vector<float> none(layer_.bias == nullptr ? layer_.outputs : 0);
    const auto* bias = static_cast<const float*>(layer_.bias);
    kai_run_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(
        1, layer_.outputs, layer_.depth, kernel.get_nr(), kernel.get_kr(), kernel.get_sr(),
        static_cast<const std::int8_t*>(layer_.weights), bias == nullptr ? none.data() : bias,
        layer_.scales.data(), memory, 0, &kParams);
  });
}

void Dynamic8::run(const LayerShape& shape, const void* input, const void* /*other*/, void* output,
                   pthreadpool_t threads) {
  const std::size_t rows = shape.rows;
  if (rows == 0) {
    return;
  }
  const Kernel& kernel = (rows == 1 ? way_.one : way_.many).kernel;
  rows_.resize(kai_get_lhs_packed_size_lhs_quant_pack_qai8dxp_f32(rows, layer_.depth, kernel.get_mr(),
                                                                  kernel.get_kr(), kernel.get_sr()));
  Work work{kernel,       layer_,  static_cast<const float*>(input),
            rows_.data(), packed_, static_cast<float*>(output)};
  pthreadpool_parallelize_1d_tile_1d(threads, pack_rows, &work, rows, kernel.get_mr(), kPoolFlags);
  const std::size_t columns =
      tile_columns(layer_.outputs, kernel.get_n_step(), divided_up(rows, kernel.get_m_step()), threads);
  pthreadpool_parallelize_2d_tile_2d(threads, multiply, &work, rows, layer_.outputs, kernel.get_m_step(),
                                     columns, kPoolFlags);
}

}  // namespace

bool has_dynamic8(const MatrixLayer& layer) {
  return !layer.windowed && !layer.given && best_of(kWays) != nullptr;
}

KaiMade make_dynamic8(const MatrixLayer& layer, PackedWeights& weights) {
  return make_packed<Dynamic8>(layer, *best_of(kWays), weights);
}

}  // namespace slipway::lean
