// Linear layers of float32 rows, each quantized by itself, and 8-bit weights (qp8_f32_qc8w).
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_qai8dxp_qsi8cxp/kai_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm.h>
#include <kai/ukernels/matmul/pack/kai_lhs_quant_pack_qai8dxp_f32.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi8cxp_qsi8cx_neon.h>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {
namespace {

#define KERNEL(variant, feature)                                                                            \
  {SLIPWAY_KERNEL(matmul_clamp_f32_, variant, feature), SLIPWAY_OF_PACKED(matmul_clamp_f32_, variant),      \
   [](const MatrixLayer& layer, std::size_t m, std::size_t n, std::size_t k, const void* lhs, std::size_t,  \
      const void* rhs, void* dst, std::size_t stride) {                                                     \
     kai_run_matmul_clamp_f32_##variant(m, n, k, lhs, rhs, static_cast<float*>(dst), stride, sizeof(float), \
                                        layer.min, layer.max);                                              \
   }}

void pack_dynamic8(const MatrixLayer& layer, const KaiWay& way, std::size_t, std::uint8_t* memory) {
  // What the kernels expect of activations that are quantized with a zero point of their own.
  constexpr kai_rhs_pack_qsi8cx_params kParams = {1, 1.0F};
  const std::vector<float> none(layer.bias == nullptr ? layer.outputs : 0);
  const auto* bias = static_cast<const float*>(layer.bias);
  kai_run_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(1, layer.outputs, layer.depth, way.weights.n_step(), way.many.kr(),
                                           way.many.sr(), static_cast<const std::int8_t*>(layer.weights),
                                           bias == nullptr ? none.data() : bias, layer.scales.data(), memory,
                                           0, &kParams);
}

#define WAY(seed, needs, many, many_feature, one, one_feature)                                            \
  {&xnn_hardware_config::needs,                                                                           \
   seed,                                                                                                  \
   0,                                                                                                     \
   KERNEL(many, many_feature),                                                                            \
   KERNEL(one, one_feature),                                                                              \
   {kai_get_lhs_packed_offset_lhs_quant_pack_qai8dxp_f32,                                                 \
    kai_get_lhs_packed_size_lhs_quant_pack_qai8dxp_f32,                                                   \
    [](std::size_t m, std::size_t k, std::size_t mr, std::size_t kr, std::size_t sr, std::size_t first,   \
       const void* lhs, std::size_t stride, void* packed) {                                               \
      kai_run_lhs_quant_pack_qai8dxp_f32(m, k, mr, kr, sr, first, static_cast<const float*>(lhs), stride, \
                                         packed);                                                         \
    }},                                                                                                   \
   {kai_get_nr_matmul_clamp_f32_##many, nullptr,                                                          \
    [](std::size_t columns, std::size_t depth) {                                                          \
      return kai_get_rhs_packed_size_rhs_pack_nxk_qsi8cxp_qsi8cx_neon(                                    \
          columns, depth, kai_get_nr_matmul_clamp_f32_##many(), kai_get_kr_matmul_clamp_f32_##many(),     \
          kai_get_sr_matmul_clamp_f32_##many());                                                          \
    },                                                                                                    \
    0, nullptr},                                                                                          \
   nullptr,                                                                                               \
   pack_dynamic8,                                                                                         \
   "QP8, F32, QC8W",                                                                                      \
   sizeof(float)}

const KaiWay kDynamic8[] = {
    WAY(0x4B410001, use_arm_sme2, qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa, "neonsme2",
        qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot, "neonsme2"),
    WAY(0x4B410002, use_arm_neon_i8mm, qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm, "neoni8mm",
        qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod, "neondot"),
    WAY(0x4B410003, use_arm_neon_dot, qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod, "neondot",
        qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod, "neondot"),
};

}  // namespace

const KaiWay* dynamic8_way() {
  return best_of(kDynamic8);
}

}  // namespace slipway::lean
