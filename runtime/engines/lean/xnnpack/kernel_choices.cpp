#include "lean/xnnpack/kernel_choices.h"

#include <xnnpack/common.h>
#include <xnnpack/config.h>
#include <xnnpack/hardware-config.h>

#include "lean/xnnpack/half_functions.h"
#include "selection.h"

#if XNN_ARCH_ARM
#include <xnnpack/microparams.h>

#include <cstddef>

// In XNNPACK's library; the header that declares it is not among those that can be had.
extern "C" void xnn_f32_vgelu_ukernel__scalar_rational_12_10_div_u1(std::size_t batch, const float* input,
                                                                    float* output,
                                                                    const xnn_f32_default_params* params);
#endif

namespace slipway::lean {
namespace {

// What XNNPACK's config functions return as constant are variables. None where a selective build left the
// operator out.
template <typename Kernel>
void put(const xnn_unary_elementwise_config* table, Kernel kernel) {
  if (table != nullptr) {
    const_cast<xnn_unary_elementwise_config*>(table)->ukernel =
        reinterpret_cast<xnn_vunary_ukernel_fn>(kernel);
  }
}

#if XNN_ARCH_ARM64 || XNN_ARCH_X86_64
// Nobody calls it where a selective build leaves halves out.
[[maybe_unused]] void correct_half_functions() {
#if XNN_ARCH_ARM64
  const HalfFunctions& ours = neon::kHalfFunctions;
#else
  const HalfFunctions& ours = avx2::kHalfFunctions;
#endif
  put(xnn_init_f16_hswish_config(), ours.hardswish);
  put(xnn_init_f16_rsqrt_config(), ours.reciprocal_root);
  put(xnn_init_f16_sigmoid_config(), ours.sigmoid);
  put(xnn_init_f16_sqrt_config(), ours.square_root);
  put(xnn_init_f16_tanh_config(), ours.tanh);
}
#endif

}  // namespace

#if XNN_ARCH_ARM64 || XNN_ARCH_X86_64
bool computes_halves() {
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
#if XNN_ARCH_ARM64
  return hardware != nullptr && hardware->use_arm_neon_fp16_arith;
#else
  return hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3 && hardware->use_x86_f16c;
#endif
}
#endif

void correct_kernel_choices() {
#if XNN_ARCH_ARM
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware == nullptr || hardware->use_arm_neon) {
    return;
  }
  // init_f32_gelu_config in its unary-elementwise-config.c falls back to the kernel for NEON where there is
  // no NEON; every other operator falls back to a scalar one.
  put(xnn_init_f32_gelu_config(), &xnn_f32_vgelu_ukernel__scalar_rational_12_10_div_u1);
#elif XNN_ARCH_ARM64 || XNN_ARCH_X86_64
  if constexpr (has_layers("xnnpack::f16")) {
    if (computes_halves()) {
      correct_half_functions();
    }
  }
#endif
}

void forget_kleidiai_kernels() {
  // Without this function, XNNPACK packs no rows for KleidiAI's kernel of float32.
  auto* packed = const_cast<xnn_gemm_config*>(xnn_init_pf32_gemm_config());
  if (packed != nullptr) {
    packed->init.f32 = nullptr;
  }
  // A table without its first kernel counts as none.
  auto* channels = const_cast<xnn_gemm_config*>(xnn_init_qp8_f32_qc4w_gemm_config());
  if (channels != nullptr) {
    channels->minmax = {};
  }
  auto* blocks = const_cast<xnn_gemm_config*>(xnn_init_qp8_f32_qb4w_gemm_config());
  if (blocks != nullptr) {
    blocks->minmax = {};
  }
}

Changed<xnn_gemm_config> plain_rows() {
  auto packed = change(xnn_init_pf32_gemm_config());
  if (packed != nullptr) {
    packed->init.f32 = nullptr;
  }
  return packed;
}

}  // namespace slipway::lean
