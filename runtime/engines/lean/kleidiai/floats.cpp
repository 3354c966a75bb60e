// Layers all in float16 (pf16) or all in float32 (pf32). Of float16, sums are float32 on SME and SME2, and
// float16 on Neon, as in XNNPACK's own kernels. Of float32, XNNPACK's own kernels for Neon stay: KleidiAI's
// compute the same way, and which are faster was never measured.
#include <kai/ukernels/matmul/imatmul_clamp_f16_f16p_f16p/kai_imatmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/imatmul_clamp_f16_f16p_f16p/kai_imatmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/imatmul_clamp_f32_f32p_f32p/kai_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/imatmul_clamp_f32_f32p_f32p/kai_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p2vlx2b_1x16vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p2vlx2b_1x8vl_sme_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p32x1b_6x32_neon_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16p_f16p/kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16p_f16p/kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32_f32p/kai_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32_f32p/kai_matmul_clamp_f32_f32_f32p2vlx1b_1x8vl_sme_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32p_f32p/kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32p_f32p/kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa.h>
#include <kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x16p2vlx2_x16p_sme.h>
#include <kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x32p2vlx1_x32p_sme.h>
#include <kai/ukernels/matmul/pack/kai_lhs_pack_f32p2vlx1_f32_sme.h>
#include <kai/ukernels/matmul/pack/kai_lhs_pack_x16p2vlx2_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_imatmul_pack_kxn_x16p2vlx2b_x16_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_imatmul_pack_kxn_x32p2vlx1b_x32_x32_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_f32p2vlx1biasf32_f32_f32_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_x16p2vlx2b_x16_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_x16p32x1b_x16_x16_neon.h>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {
namespace {

using Half = __fp16;

template <typename Element>
Element element_at(const void* from, bool wide, std::size_t at) {
  return wide ? static_cast<Element>(static_cast<const float*>(from)[at])
              : static_cast<const Element*>(from)[at];
}

template <typename Element>
using PackWindows = void (*)(std::size_t n, std::size_t chunks, std::size_t length, std::size_t stride,
                             const void* rhs, const void* bias, void* packed);

template <typename Element, PackWindows<Element> kPackWindows>
void pack_floats(const MatrixLayer& layer, const KaiWay& way, std::size_t batch, std::uint8_t* memory) {
  const std::size_t step = layer.windowed ? way.windows->n_step() : way.weights.n_step();
  std::vector<Element> biases(step);
  const auto weight = [&](std::size_t output, std::size_t k) {
    return element_at<Element>(
        layer.weights, layer.wide_weights,
        batch * layer.depth * layer.outputs + output * layer.along_outputs + k * layer.along_depth);
  };
  each_block<Element>(layer, step, weight, [&](std::size_t first, std::size_t count, const Element* block) {
    for (std::size_t n = 0; n < count && layer.bias != nullptr; ++n) {
      biases[n] = element_at<Element>(layer.bias, layer.wide_bias, first + n);
    }
    const std::size_t stride = count * sizeof(Element);
    if (layer.windowed) {
      const std::size_t chunks = chunks_of(layer);
      kPackWindows(count, chunks, layer.channels, stride, block, biases.data(),
                   memory + way.windows->rhs_offset(first, chunks, layer.channels));
    } else {
      way.weights.run(1, count, layer.depth, step, way.weights.kr, 1, stride, block, biases.data(), nullptr,
                      memory + way.weights.offset(first, layer.depth), 0, nullptr);
    }
  });
}

#define ROWS_ARGUMENTS                                                                    \
  const MatrixLayer &layer, std::size_t m, std::size_t n, std::size_t k, const void *lhs, \
      [[maybe_unused]] std::size_t lhs_stride, const void *rhs, void *dst, std::size_t stride
#define PACKED(prefix, variant, feature, Element)                                                      \
  {SLIPWAY_KERNEL(prefix, variant, feature), SLIPWAY_OF_PACKED(prefix, variant), [](ROWS_ARGUMENTS) {  \
     kai_run_##prefix##variant(m, n, k, lhs, rhs, dst, stride, sizeof(Element), layer.min, layer.max); \
   }}
#define PLAIN(prefix, variant, feature, Element)                                                       \
  {SLIPWAY_KERNEL(prefix, variant, feature), nullptr, nullptr, nullptr, nullptr, [](ROWS_ARGUMENTS) {  \
     kai_run_##prefix##variant(m, n, k, lhs, lhs_stride, rhs, dst, stride, sizeof(Element), layer.min, \
                               layer.max);                                                             \
   }}
#define WEIGHTS(name, kr)                                                                       \
  {kai_get_n_step_##name, kai_get_rhs_packed_offset_##name, kai_get_rhs_packed_size_##name, kr, \
   kai_run_##name}
#define WINDOWS(prefix, variant, feature, weights, rows)                                                   \
  {SLIPWAY_WINDOW(prefix, variant, feature),                                                               \
   [](const MatrixLayer& layer, std::size_t m, std::size_t n, std::size_t chunks, const void* lhs,         \
      const void* rhs, void* dst, std::size_t stride) {                                                    \
     kai_run_##prefix##variant(m, n, chunks, layer.channels, lhs, rhs, dst, stride, layer.min, layer.max); \
   },                                                                                                      \
   kai_get_rhs_packed_offset_##weights, kai_get_rhs_packed_size_##weights, SLIPWAY_GATHERING(rows)}

#define HALF_WINDOWS(variant, feature)                                                       \
  WINDOWS(imatmul_clamp_f16_, variant, feature, rhs_imatmul_pack_kxn_x16p2vlx2b_x16_x16_sme, \
          lhs_imatmul_pack_x16p2vlx2_x16p_sme)
const WindowKernel kHalfSme2Windows = HALF_WINDOWS(f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa, "neonsme2");
const WindowKernel kHalfSmeWindows = HALF_WINDOWS(f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa, "neonsme");
constexpr auto kPackHalves = pack_floats<Half, kai_run_rhs_imatmul_pack_kxn_x16p2vlx2b_x16_x16_sme>;

const KaiWay kHalf[] = {
    {&xnn_hardware_config::use_arm_sme2, 0x4B410011, 0x4B410014,
     PACKED(matmul_clamp_f16_, f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa, "neonsme2", Half),
     PLAIN(matmul_clamp_f16_, f16_f16p2vlx2b_1x16vl_sme2_dot, "neonsme2", Half),
     SLIPWAY_ROWS(lhs_pack_x16p2vlx2_x16_sme), WEIGHTS(rhs_pack_kxn_x16p2vlx2b_x16_x16_sme, 2),
     &kHalfSme2Windows, kPackHalves, "PF16", sizeof(Half)},
    {&xnn_hardware_config::use_arm_sme, 0x4B410012, 0x4B410015,
     PACKED(matmul_clamp_f16_, f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa, "neonsme", Half),
     PLAIN(matmul_clamp_f16_, f16_f16p2vlx2b_1x8vl_sme_mla, "neonsme", Half),
     SLIPWAY_ROWS(lhs_pack_x16p2vlx2_x16_sme), WEIGHTS(rhs_pack_kxn_x16p2vlx2b_x16_x16_sme, 2),
     &kHalfSmeWindows, kPackHalves, "PF16", sizeof(Half)},
    {&xnn_hardware_config::use_arm_neon_fp16_arith,
     0x4B410013,
     0,
     PLAIN(matmul_clamp_f16_, f16_f16p32x1b_6x32_neon_mla, "neonfp16arith", Half),
     PLAIN(matmul_clamp_f16_, f16_f16p32x1b_6x32_neon_mla, "neonfp16arith", Half),
     {},
     WEIGHTS(rhs_pack_kxn_x16p32x1b_x16_x16_neon, 1),
     nullptr,
     kPackHalves,
     "PF16",
     sizeof(Half)},
};

#define SINGLE_WINDOWS(variant, feature)                                                     \
  WINDOWS(imatmul_clamp_f32_, variant, feature, rhs_imatmul_pack_kxn_x32p2vlx1b_x32_x32_sme, \
          lhs_imatmul_pack_x32p2vlx1_x32p_sme)
const WindowKernel kSingleSme2Windows = SINGLE_WINDOWS(f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa, "neonsme2");
const WindowKernel kSingleSmeWindows = SINGLE_WINDOWS(f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa, "neonsme");
constexpr auto kPackSingles = pack_floats<float, kai_run_rhs_imatmul_pack_kxn_x32p2vlx1b_x32_x32_sme>;

const KaiWay kSingle[] = {
    {&xnn_hardware_config::use_arm_sme2, 0x4B410031, 0x4B410033,
     PACKED(matmul_clamp_f32_, f32p2vlx1_f32p2vlx1biasf32_sme2_mopa, "neonsme2", float),
     PLAIN(matmul_clamp_f32_, f32_f32p2vlx1b_1x16vl_sme2_mla, "neonsme2", float),
     SLIPWAY_ROWS(lhs_pack_f32p2vlx1_f32_sme), WEIGHTS(rhs_pack_kxn_f32p2vlx1biasf32_f32_f32_sme, 1),
     &kSingleSme2Windows, kPackSingles, "PF32", sizeof(float)},
    {&xnn_hardware_config::use_arm_sme, 0x4B410032, 0x4B410034,
     PACKED(matmul_clamp_f32_, f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa, "neonsme", float),
     PLAIN(matmul_clamp_f32_, f32_f32p2vlx1b_1x8vl_sme_mla, "neonsme", float),
     SLIPWAY_ROWS(lhs_pack_f32p2vlx1_f32_sme), WEIGHTS(rhs_pack_kxn_f32p2vlx1biasf32_f32_f32_sme, 1),
     &kSingleSmeWindows, kPackSingles, "PF32", sizeof(float)},
};

}  // namespace

const KaiWay* half_way() {
  return best_of(kHalf);
}

const KaiWay* single_way() {
  return best_of(kSingle);
}

}  // namespace slipway::lean
