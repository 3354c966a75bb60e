// Layers of int8 with a scale and a zero point, and 8-bit weights with a scale a channel (pqs8_qc8w).
#include <kai/ukernels/matmul/imatmul_clamp_qai8_qai8p_qsi8cxp/kai_imatmul_clamp_qai8_qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/imatmul_clamp_qai8_qai8p_qsi8cxp/kai_imatmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_qai8_qai8_qsi8cxp/kai_matmul_clamp_qai8_qai8_qsi8cxp2vlx4sb_1x16vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_qai8_qai8p_qsi8cxp/kai_matmul_clamp_qai8_qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_qai8_qai8p_qsi8cxp/kai_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x8p2vlx4_x8p_sme.h>
#include <kai/ukernels/matmul/pack/kai_lhs_pack_x8p2vlx4_x8_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme.h>

#include <algorithm>
#include <cmath>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {
namespace {

// The whole number that stands for a real one in the output, as near as it comes.
std::int32_t quantized(float value, const MatrixLayer& layer) {
  const float scaled = value / layer.output_scale + static_cast<float>(layer.output_zero);
  return static_cast<std::int32_t>(std::lrint(std::clamp(scaled, -128.0F, 127.0F)));
}

kai_matmul_requantize32_params requantization(const MatrixLayer& layer) {
  return {quantized(layer.min, layer), quantized(layer.max, layer), layer.output_zero};
}

#define RUN(variant)                                                                                      \
  [](const MatrixLayer& layer, std::size_t m, std::size_t n, std::size_t k, const void* lhs, std::size_t, \
     const void* rhs, void* dst, std::size_t stride) {                                                    \
    const kai_matmul_requantize32_params params = requantization(layer);                                  \
    kai_run_matmul_clamp_qai8_##variant(m, n, k, lhs, rhs, dst, stride, 1, &params);                      \
  }
#define PACKED(variant, feature)                                                                         \
  {SLIPWAY_KERNEL(matmul_clamp_qai8_, variant, feature), SLIPWAY_OF_PACKED(matmul_clamp_qai8_, variant), \
   RUN(variant)}
#define PLAIN(variant, feature) \
  {SLIPWAY_KERNEL(matmul_clamp_qai8_, variant, feature), nullptr, nullptr, nullptr, nullptr, RUN(variant)}
#define WINDOWS(variant, feature)                                                                        \
  {SLIPWAY_WINDOW(imatmul_clamp_qai8_, variant, feature),                                                \
   [](const MatrixLayer& layer, std::size_t m, std::size_t n, std::size_t chunks, const void* lhs,       \
      const void* rhs, void* dst, std::size_t stride) {                                                  \
     const kai_matmul_requantize32_params params = requantization(layer);                                \
     kai_run_imatmul_clamp_qai8_##variant(m, n, chunks, layer.channels, lhs, rhs, dst, stride, &params); \
   },                                                                                                    \
   kai_get_rhs_packed_offset_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme,                      \
   kai_get_rhs_packed_size_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme,                        \
   SLIPWAY_GATHERING(lhs_imatmul_pack_x8p2vlx4_x8p_sme)}

const WindowKernel kSme2Windows = WINDOWS(qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa, "neonsme2");
const WindowKernel kSmeWindows = WINDOWS(qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa, "neonsme");

void pack_static8(const MatrixLayer& layer, const KaiWay& way, std::size_t, std::uint8_t* memory) {
  const auto* weights = static_cast<const std::int8_t*>(layer.weights);
  const kai_rhs_pack_qsi8cx_params params = {layer.input_zero, 1.0F};
  // Computed as XNNPACK does, so that results are rounded alike.
  std::vector<float> scales(layer.outputs);
  for (std::size_t n = 0; n < layer.outputs; ++n) {
    scales[n] = layer.input_scale * layer.scales[n] / layer.output_scale;
  }
  const std::vector<std::int32_t> none(layer.bias == nullptr ? layer.outputs : 0);
  const auto* biases = layer.bias == nullptr ? none.data() : static_cast<const std::int32_t*>(layer.bias);
  const std::size_t step = way.weights.n_step();
  const auto weight = [&](std::size_t output, std::size_t k) {
    return weights[output * layer.along_outputs + k * layer.along_depth];
  };
  each_block<std::int8_t>(
      layer, step, weight, [&](std::size_t first, std::size_t count, const std::int8_t* block) {
        if (layer.windowed) {
          const std::size_t chunks = chunks_of(layer);
          kai_run_rhs_imatmul_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(
              count, chunks, layer.channels, count, block, biases + first, scales.data() + first,
              memory + way.windows->rhs_offset(first, chunks, layer.channels), &params);
        } else {
          kai_run_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme(
              1, count, layer.depth, step, way.weights.kr, 1, count, block, biases + first,
              scales.data() + first, memory + way.weights.offset(first, layer.depth), 0, &params);
        }
      });
}

#define WAY(needs, many, one, windows)                                                  \
  {&xnn_hardware_config::needs,                                                         \
   0x4B410021,                                                                          \
   0x4B410022,                                                                          \
   many,                                                                                \
   one,                                                                                 \
   SLIPWAY_ROWS(lhs_pack_x8p2vlx4_x8_sme),                                              \
   {kai_get_n_step_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme,                       \
    kai_get_rhs_packed_offset_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme,            \
    kai_get_rhs_packed_size_rhs_pack_kxn_qsi8cxp2vlx4sb_qs8cx_f32_i32_sme, 4, nullptr}, \
   &windows,                                                                            \
   pack_static8,                                                                        \
   "PQS8, QC8W",                                                                        \
   1}

// All read weights packed in the same way. There are no kernels for processors without SME.
const KaiWay kStatic8[] = {
    WAY(use_arm_sme2, PACKED(qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa, "neonsme2"),
        PLAIN(qai8_qsi8cxp2vlx4sb_1x16vl_sme2_dot, "neonsme2"), kSme2Windows),
    WAY(use_arm_sme, PACKED(qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa, "neonsme"),
        PACKED(qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa, "neonsme"), kSmeWindows),
};

}  // namespace

const KaiWay* static8_way() {
  return best_of(kStatic8);
}

}  // namespace slipway::lean
