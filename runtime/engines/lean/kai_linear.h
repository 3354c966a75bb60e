// Linear layers on KleidiAI's own kernels for 8-bit weights (qp8_f32_qc8w), which this XNNPACK does not call.
#pragma once

#include <pthreadpool.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "packed_weights.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "xnn_split.h"

namespace slipway::lean {

struct KaiKernels;  // one way to compute: for many rows, and for one

// The best on this processor; nullptr when it has none, or this program was built without KleidiAI. XNNPACK
// is initialised by then.
const KaiKernels* kai_kernels();

class KaiLinear {
 public:
  // Packs the weights, or finds them packed. kMemory when there is none left.
  static Result<std::unique_ptr<KaiLinear>> make(const KaiKernels& kernels, const LinearLayer& layer,
                                                 PackedWeights& weights);

  const LinearLayer& layer() const { return layer_; }
  // `input` is rows x depth, `output` rows x outputs, both row-major.
  void run(const float* input, std::size_t rows, float* output, pthreadpool_t threads);
  // What run() uses for that number of rows.
  KernelUse use(std::size_t rows) const;

 private:
  KaiLinear(const KaiKernels& kernels, const LinearLayer& layer) : kernels_(kernels), layer_(layer) {}

  // Targets without KleidiAI make none.
  [[maybe_unused]] const KaiKernels& kernels_;
  LinearLayer layer_;
  [[maybe_unused]] const std::uint8_t* packed_ = nullptr;
  std::vector<std::uint8_t> rows_;  // quantized and packed activations
};

}  // namespace slipway::lean
