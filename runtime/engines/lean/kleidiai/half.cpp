// Layers all in float16 (pf16). On SME and SME2 sums are float32; on Neon they are float16, as in XNNPACK's
// own kernels.
#include <kai/ukernels/matmul/imatmul_clamp_f16_f16p_f16p/kai_imatmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/imatmul_clamp_f16_f16p_f16p/kai_imatmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p2vlx2b_1x16vl_sme2_dot.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p2vlx2b_1x8vl_sme_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16_f16p/kai_matmul_clamp_f16_f16_f16p32x1b_6x32_neon_mla.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16p_f16p/kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa.h>
#include <kai/ukernels/matmul/matmul_clamp_f16_f16p_f16p/kai_matmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa.h>
#include <kai/ukernels/matmul/pack/kai_lhs_imatmul_pack_x16p2vlx2_x16p_sme.h>
#include <kai/ukernels/matmul/pack/kai_lhs_pack_x16p2vlx2_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_imatmul_pack_kxn_x16p2vlx2b_x16_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_x16p2vlx2b_x16_x16_sme.h>
#include <kai/ukernels/matmul/pack/kai_rhs_pack_kxn_x16p32x1b_x16_x16_neon.h>

#include "lean/kleidiai/float_layer.h"

namespace slipway::lean {
namespace {

using Half = __fp16;

#define PACKED(variant, feature) \
  {SLIPWAY_PACKED(matmul_clamp_f16_, variant, feature), kai_run_matmul_clamp_f16_##variant, nullptr}
#define PLAIN(variant, feature) \
  {SLIPWAY_PLAIN(matmul_clamp_f16_, variant, feature), nullptr, kai_run_matmul_clamp_f16_##variant}
#define WINDOWS(variant, feature)                                                                    \
  SLIPWAY_WINDOWS(imatmul_clamp_f16_, variant, feature, rhs_imatmul_pack_kxn_x16p2vlx2b_x16_x16_sme, \
                  lhs_imatmul_pack_x16p2vlx2_x16p_sme)

const WindowKernel kSme2Windows = WINDOWS(f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa, "neonsme2");
const WindowKernel kSmeWindows = WINDOWS(f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa, "neonsme");

// The best first. Both kernels of one line read weights packed in the same way.
const FloatWay kWays[] = {
    {0x4B410011, 0x4B410014, &xnn_hardware_config::use_arm_sme2,
     PACKED(f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa, "neonsme2"),
     PLAIN(f16_f16p2vlx2b_1x16vl_sme2_dot, "neonsme2"),
     SLIPWAY_WEIGHTS(rhs_pack_kxn_x16p2vlx2b_x16_x16_sme, 2), SLIPWAY_ROWS(lhs_pack_x16p2vlx2_x16_sme, 2),
     &kSme2Windows},
    {0x4B410012, 0x4B410015, &xnn_hardware_config::use_arm_sme,
     PACKED(f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa, "neonsme"), PLAIN(f16_f16p2vlx2b_1x8vl_sme_mla, "neonsme"),
     SLIPWAY_WEIGHTS(rhs_pack_kxn_x16p2vlx2b_x16_x16_sme, 2), SLIPWAY_ROWS(lhs_pack_x16p2vlx2_x16_sme, 2),
     &kSmeWindows},
    {0x4B410013,
     0,
     &xnn_hardware_config::use_arm_neon_fp16_arith,
     PLAIN(f16_f16p32x1b_6x32_neon_mla, "neonfp16arith"),
     PLAIN(f16_f16p32x1b_6x32_neon_mla, "neonfp16arith"),
     SLIPWAY_WEIGHTS(rhs_pack_kxn_x16p32x1b_x16_x16_neon, 1),
     {},
     nullptr},
};
#undef WINDOWS
#undef PLAIN
#undef PACKED

}  // namespace

bool has_half(const MatrixLayer& layer) {
  return has_float(kWays, layer);
}

KaiMade make_half(const MatrixLayer& layer, PackedWeights& weights) {
  return make_float<Half>(kWays, layer, "PF16", weights);
}

}  // namespace slipway::lean
