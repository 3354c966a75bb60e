// What our kernels are called.
#include <string>

#include "lean/xnnpack/byte_tiles.h"
#include "lean/xnnpack/depthwise.h"
#include "lean/xnnpack/float_tiles.h"
#include "lean/xnnpack/int4_tiles.h"
#include "lean/xnnpack/tile_choice.h"
#include "lean/xnnpack/winograd.h"

namespace slipway::lean {

std::string tile_name(void (*kernel)()) {
  const TileSet* set = float_tiles();
  const auto search = [&](const auto& tiles, const char* type) -> std::string {
    for (std::size_t vectors = 1; vectors <= kMostTileVectors; ++vectors) {
      for (std::size_t rows = 1; rows <= kMostTileRows; ++rows) {
        const auto& tile = tiles[vectors - 1][rows - 1];
        const bool gemm = kernel == reinterpret_cast<void (*)()>(tile.gemm);
        if (tile.gemm != nullptr && (gemm || kernel == reinterpret_cast<void (*)()>(tile.igemm))) {
          return std::string("slipway_") + type + (gemm ? "_gemm_" : "_igemm_") + std::to_string(rows) + "x" +
                 std::to_string(vectors * set->lanes) + "__" + set->isa;
        }
      }
    }
    return {};
  };
  for (std::string name : {int4_name(kernel), std::string(byte_name(kernel))}) {
    if (!name.empty()) {
      return name;
    }
  }
  if (set == nullptr) {
    return {};
  }
  for (std::string name : {search(set->tiles, "f32"), search(set->halves, "f16_f32acc")}) {
    if (!name.empty()) {
      return name;
    }
  }
  const std::string winograd = winograd_name(kernel);
  return winograd.empty() ? depthwise_name(kernel) : winograd;
}

}  // namespace slipway::lean
