#include "lean/kleidiai/layer.h"

#include <algorithm>

#include "lean/kleidiai/kernels.h"

namespace slipway::lean {

bool kai_has(const MatrixLayer& layer) {
  switch (layer.arithmetic) {
    case Arithmetic::kDynamic8:
      return has_dynamic8(layer);
    case Arithmetic::kHalf:
      return has_half(layer);
    case Arithmetic::kSingle:
      return has_single(layer);
    case Arithmetic::kStatic8:
      return has_static8(layer);
  }
  return false;
}

bool kai_has_any() {
  MatrixLayer layer;
  bool any = false;
  for (const Arithmetic arithmetic :
       {Arithmetic::kDynamic8, Arithmetic::kHalf, Arithmetic::kSingle, Arithmetic::kStatic8}) {
    layer.arithmetic = arithmetic;
    any = any || kai_has(layer);
  }
  return any;
}

Result<std::unique_ptr<KaiLayer>> make_kai_layer(const MatrixLayer& layer, PackedWeights& weights) {
  switch (layer.arithmetic) {
    case Arithmetic::kDynamic8:
      return make_dynamic8(layer, weights);
    case Arithmetic::kHalf:
      return make_half(layer, weights);
    case Arithmetic::kSingle:
      return make_single(layer, weights);
    default:
      return make_static8(layer, weights);
  }
}

Status KaiLayer::pack_once(std::uint32_t seed, std::size_t step, std::size_t size, PackedWeights& weights,
                           const std::function<void(std::uint8_t*)>& write) {
  xnn_weights_cache_t cache = weights.provider();
  const xnn_weights_cache_look_up_key key = {seed, layer_.weights, layer_.bias};
  std::size_t packed_offset = cache->look_up(cache->context, &key);
  if (packed_offset == SIZE_MAX) {
    auto* memory = static_cast<std::uint8_t*>(cache->reserve_space(cache->context, size));
    if (memory == nullptr) {
      return {Code::kMemory, "There is no memory for packed weights: " + std::to_string(size) + " bytes.",
              "use a smaller program, or a device with more memory"};
    }
    write(memory);
    packed_offset = cache->look_up_or_insert(cache->context, &key, memory, size);
  }
  weights.confirm({packed_offset, {0, static_cast<std::uint32_t>(step), 0, 0, seed}, size});
  packed_ = static_cast<const std::uint8_t*>(cache->offset_to_addr(cache->context, packed_offset));
  return {};
}

std::size_t divided_up(std::size_t number, std::size_t by) {
  return number / by + (number % by != 0 ? 1 : 0);
}

std::size_t tile_columns(std::size_t outputs, std::size_t step, std::size_t tiles_of_rows,
                         pthreadpool_t threads) {
  const std::size_t tiles = divided_up(5 * pthreadpool_get_threads_count(threads), tiles_of_rows);
  return divided_up(divided_up(outputs, tiles), step) * step;
}

std::string node_name(const MatrixLayer& layer, const char* types) {
  const char* kind = "Fully Connected (NC, ";
  if (layer.operation == Operation::kConvolution) {
    kind = "Convolution (NHWC, ";
  } else if (layer.operation == Operation::kBatchMatrixMultiply) {
    kind = "Batch Matrix Multiply (NC, ";
  }
  return std::string(kind) + types + (layer.windowed ? ") IGEMM" : ") GEMM");
}

}  // namespace slipway::lean
