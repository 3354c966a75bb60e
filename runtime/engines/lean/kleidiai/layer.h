// Layers on KleidiAI's own kernels, which this XNNPACK does not call.
#pragma once

#include <pthreadpool.h>

#include <cstddef>
#include <cstdint>
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

struct KaiWay;

class KaiLayer {
 public:
  KaiLayer(MatrixLayer layer, const KaiWay& way) : layer_(std::move(layer)), way_(way) {}

  const MatrixLayer& layer() const { return layer_; }
  // Packs the weights, or finds them packed. kMemory when there is none left.
  Status pack(PackedWeights& weights);
  // `input` is rows x depth, or images of height x width x channels, `output` rows x outputs, `other` a
  // product's second input, batches x depth x outputs; all row-major.
  void run(const LayerShape& shape, const void* input, const void* other, void* output,
           pthreadpool_t threads);
  // What run() uses for that number of rows.
  KernelUse use(const LayerShape& shape) const;

 private:
  MatrixLayer layer_;
  const KaiWay& way_;
  const std::uint8_t* packed_ = nullptr;  // weights
  std::vector<std::uint8_t> rows_;        // packed activations
  std::vector<std::uint8_t> given_;       // a product's packed second input
  std::vector<std::uint8_t> zeros_;       // a pixel outside of the image, or the bias of such a product
};

// Whether this processor has what a kernel for it wants, and this program was built with KleidiAI. XNNPACK is
// initialised by then.
bool kai_has(const MatrixLayer& layer);
// Whether there is any kernel at all for this processor.
bool kai_has_any();

// Of a layer that kai_has() a kernel for, with its weights packed.
Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& layer, PackedWeights& weights);

}  // namespace slipway::lean
