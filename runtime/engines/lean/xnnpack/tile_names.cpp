// The shapes of our kernels: which there are for a product, and what they are called.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lean/xnnpack/byte_tiles.h"
#include "lean/xnnpack/depthwise.h"
#include "lean/xnnpack/float_tiles.h"
#include "lean/xnnpack/int4_tiles.h"
#include "lean/xnnpack/tile_choice.h"
#include "lean/xnnpack/winograd.h"

namespace slipway::lean {

std::vector<TileShape> tile_shapes(const TileSet& set, TileElement element, std::size_t rows,
                                   std::size_t columns, std::size_t depth) {
  std::vector<std::pair<double, TileShape>> found;
  for (std::size_t vectors = 1; vectors <= kMostTileVectors; ++vectors) {
    bool enough = false;
    for (std::size_t tile = 1; tile <= kMostTileRows && !enough; ++tile) {
      if (has_tile(set, element, tile, vectors)) {
        found.push_back({cycles_of(set, {tile, vectors}, rows, columns, depth), {tile, vectors}});
        enough = tile >= rows;
      }
    }
  }
  // Equal ones as they are found.
  std::sort(found.begin(), found.end(), [](const auto& one, const auto& other) {
    return std::make_tuple(one.first, one.second.vectors, one.second.rows) <
           std::make_tuple(other.first, other.second.vectors, other.second.rows);
  });
  std::vector<TileShape> shapes;
  for (const auto& [cycles, shape] : found) {
    shapes.push_back(shape);
  }
  return shapes;
}

std::string shape_name(const TileSet& set, TileShape shape) {
  return std::to_string(shape.rows) + "x" + std::to_string(shape.vectors * set.lanes);
}

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
