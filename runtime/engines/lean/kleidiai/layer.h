// Layers on KleidiAI's own kernels, which this XNNPACK does not call.
#pragma once

#include <pthreadpool.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lean/xnnpack/matrix_layer.h"
#include "lean/xnnpack/packed_weights.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::lean {

class KaiLayer {
 public:
  KaiLayer(const KaiLayer&) = delete;
  KaiLayer& operator=(const KaiLayer&) = delete;
  virtual ~KaiLayer() = default;

  const MatrixLayer& layer() const { return layer_; }
  // `input` is rows x depth, `output` rows x outputs, both row-major; `rows` are all of a batched product's.
  virtual void run(const void* input, std::size_t rows, void* output, pthreadpool_t threads) = 0;
  // What run() uses for that number of rows.
  virtual KernelUse use(std::size_t rows) const = 0;

 protected:
  explicit KaiLayer(MatrixLayer layer) : layer_(std::move(layer)) {}

  // Keeps the weights, `size` bytes in the form that `write` gives them, which `seed` tells from others, for
  // a kernel of `step` outputs at a time; what is there already is not written again.
  Status pack_once(std::uint32_t seed, std::size_t step, std::size_t size, PackedWeights& weights,
                   const std::function<void(std::uint8_t*)>& write);

  MatrixLayer layer_;
  const std::uint8_t* packed_ = nullptr;  // weights
  std::vector<std::uint8_t> rows_;        // packed activations
};

// Whether this processor has what a kernel for it wants, and this program was built with KleidiAI. XNNPACK is
// initialised by then.
bool kai_has(Arithmetic arithmetic);

// Packs the weights, or finds them packed. kMemory when there is none left.
Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& layer, PackedWeights& weights);

}  // namespace slipway::lean
