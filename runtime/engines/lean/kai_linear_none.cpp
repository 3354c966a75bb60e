// For targets without KleidiAI.
#include "kai_linear.h"

namespace slipway::lean {

struct KaiKernels {};

const KaiKernels* kai_kernels() {
  return nullptr;
}

Result<std::unique_ptr<KaiLinear>> KaiLinear::make(const KaiKernels& kernels, const LinearLayer& layer,
                                                   PackedWeights& /*weights*/) {
  return std::unique_ptr<KaiLinear>(new KaiLinear(kernels, layer));
}

void KaiLinear::run(const float* /*input*/, std::size_t /*rows*/, float* /*output*/,
                    pthreadpool_t /*threads*/) {}

KernelUse KaiLinear::use(std::size_t /*rows*/) const {
  return {};
}

}  // namespace slipway::lean
