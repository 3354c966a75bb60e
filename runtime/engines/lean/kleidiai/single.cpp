// Layers all in float32 (pf32). XNNPACK's own kernels for Neon stay: KleidiAI's compute the same way, and
// which are faster was never measured.
#include <kai/ukernels/matmul/imatmul_clamp_f32_f32p_f32p/kai_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/imatmul_clamp_f32_f32p_f32p/kai_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32_f32p/kai_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32_f32p/kai_matmul_clamp_f32_f32_f32p2vlx1b_1x8vl_sme_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32p_f32p/kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f32_f32p_f32p/kai_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa.h>
#include <kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x32p2vlx1_x32p_sme.h>
#include <kai/ukernels/matmul/pack/kai_lhs_pack_f32p2vlx1_f32_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_imatmul_pack_kxn_x32p2vlx1b_x32_x32_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_f32p2vlx1biasf32_f32_f32_sme.h>

#include "lean/kleidiai/float_layer.h"

namespace slipway::lean {
namespace {

#define PACKED(variant, feature) \
  {SLIPWAY_PACKED(matmul_clamp_f32_, variant, feature), kai_run_matmul_clamp_f32_##variant, nullptr}
#define PLAIN(variant, feature) \
  {SLIPWAY_PLAIN(matmul_clamp_f32_, variant, feature), nullptr, kai_run_matmul_clamp_f32_##variant}
#define WINDOWS(variant, feature)                                                                    \
  SLIPWAY_WINDOWS(imatmul_clamp_f32_, variant, feature, rhs_imatmul_pack_kxn_x32p2vlx1b_x32_x32_sme, \
                  lhs_imatmul_pack_x32p2vlx1_x32p_sme)

const WindowKernel kSme2Windows = WINDOWS(f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa, "neonsme2");
const WindowKernel kSmeWindows = WINDOWS(f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa, "neonsme");

// The best first. Both kernels of one line read weights packed in the same way.
const FloatWay kWays[] = {
    {0x4B410031, 0x4B410033, &xnn_hardware_config::use_arm_sme2,
     PACKED(f32p2vlx1_f32p2vlx1biasf32_sme2_mopa, "neonsme2"),
     PLAIN(f32_f32p2vlx1b_1x16vl_sme2_mla, "neonsme2"),
     SLIPWAY_WEIGHTS(rhs_pack_kxn_f32p2vlx1biasf32_f32_f32_sme, 1),
     SLIPWAY_ROWS(lhs_pack_f32p2vlx1_f32_sme, 1), &kSme2Windows},
    {0x4B410032, 0x4B410034, &xnn_hardware_config::use_arm_sme,
     PACKED(f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa, "neonsme"), PLAIN(f32_f32p2vlx1b_1x8vl_sme_mla, "neonsme"),
     SLIPWAY_WEIGHTS(rhs_pack_kxn_f32p2vlx1biasf32_f32_f32_sme, 1),
     SLIPWAY_ROWS(lhs_pack_f32p2vlx1_f32_sme, 1), &kSmeWindows},
};
#undef WINDOWS
#undef PLAIN
#undef PACKED

}  // namespace

bool has_single(const MatrixLayer& layer) {
  return has_float(kWays, layer);
}

KaiMade make_single(const MatrixLayer& layer, PackedWeights& weights) {
  return make_float<float>(kWays, layer, "PF32", weights);
}

}  // namespace slipway::lean
