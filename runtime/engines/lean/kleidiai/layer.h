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

// The sizes of an execution.
struct LayerShape {
  std::size_t rows = 0;     // of all batches or images
  std::size_t batches = 1;  // of weights
  std::size_t depth = 0;
  std::size_t outputs = 0;
  std::size_t height = 0;  // of images
  std::size_t width = 0;
  std::size_t down = 0;  // windows along the height
  std::size_t across = 0;
};

class KaiLayer {
 public:
  KaiLayer(const KaiLayer&) = delete;
  KaiLayer& operator=(const KaiLayer&) = delete;
  virtual ~KaiLayer() = default;

  const MatrixLayer& layer() const { return layer_; }
  // `input` is rows x depth, or images of height x width x channels, `output` rows x outputs, `other` a
  // product's second input, batches x depth x outputs; all row-major.
  virtual void run(const LayerShape& shape, const void* input, const void* other, void* output,
                   pthreadpool_t threads) = 0;
  // What run() uses for that number of rows.
  virtual KernelUse use(const LayerShape& shape) const = 0;

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
bool kai_has(const MatrixLayer& layer);
// Whether there is any kernel at all for this processor.
bool kai_has_any();

// Packs the weights, or finds them packed. kMemory when there is none left.
Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& layer, PackedWeights& weights);

}  // namespace slipway::lean
