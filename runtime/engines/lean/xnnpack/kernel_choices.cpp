#include "lean/xnnpack/kernel_choices.h"

#include <xnnpack/common.h>
#include <xnnpack/config.h>

#if XNN_ARCH_ARM
#include <xnnpack/hardware-config.h>
#include <xnnpack/microparams.h>

#include <cstddef>

// In XNNPACK's library; the header that declares it is not among those that can be had.
extern "C" void xnn_f32_vgelu_ukernel__scalar_rational_12_10_div_u1(std::size_t batch, const float* input,
                                                                    float* output,
                                                                    const xnn_f32_default_params* params);
#endif

namespace slipway::lean {

void correct_kernel_choices() {
#if XNN_ARCH_ARM
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware == nullptr || hardware->use_arm_neon) {
    return;
  }
  // init_f32_gelu_config in its unary-elementwise-config.c falls back to the kernel for NEON where there is
  // no NEON; every other operator falls back to a scalar one. What it returns as constant is a variable.
  auto* gelu = const_cast<xnn_unary_elementwise_config*>(xnn_init_f32_gelu_config());
  if (gelu != nullptr) {
    gelu->ukernel =
        reinterpret_cast<xnn_vunary_ukernel_fn>(&xnn_f32_vgelu_ukernel__scalar_rational_12_10_div_u1);
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

// What XNNPACK's config functions return as constant are variables.
PlainRows::PlainRows() {
  auto* packed = const_cast<xnn_gemm_config*>(xnn_init_pf32_gemm_config());
  if (packed != nullptr) {
    init_ = reinterpret_cast<void (*)()>(packed->init.f32);
    packed->init.f32 = nullptr;
  }
}

PlainRows::~PlainRows() {
  auto* packed = const_cast<xnn_gemm_config*>(xnn_init_pf32_gemm_config());
  if (packed != nullptr) {
    packed->init.f32 = reinterpret_cast<xnn_init_f32_minmax_params_fn>(init_);
  }
}

}  // namespace slipway::lean
