// How a kernel of ours is chosen for a layer. What kernels compute is tested in tests/tails.

#include "check.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/tile_choice.h"
#include "lean/xnnpack/vector_kernels.h"
#include "lean/xnnpack/winograd.h"

using namespace slipway::lean;

namespace {

using Sizes = std::initializer_list<std::size_t>;

// The sets that this processor runs.
std::vector<const TileSet*> sets() {
  std::vector<const TileSet*> found;
  if (float_tiles() != nullptr) {
    found.push_back(float_tiles());
  }
#if defined(__x86_64__)
  if (float_tiles() == &avx512f::kTiles) {
    found.push_back(&avx2::kTiles);
  }
#endif
  return found;
}

}  // namespace

TEST("narrow layers get narrow tiles, and the columns do not depend on the rows") {
  for (const TileSet* set : sets()) {
    CHECK(choose_tile(*set, TileElement::kFloat, 3136, 8, 72).vectors * set->lanes <= 16);
    for (const std::size_t columns : Sizes{8, 24, 64, 96, 144, 1000}) {
      const TileShape many = choose_tile(*set, TileElement::kFloat, 12544, columns, 64);
      for (const std::size_t rows : Sizes{1, 7, 49, 197}) {
        const TileShape shape = choose_tile(*set, TileElement::kFloat, rows, columns, 64);
        CHECK(shape.vectors == many.vectors);
        CHECK(shape.rows <= std::max<std::size_t>(rows, 1));
        CHECK(set->tiles[shape.vectors - 1][shape.rows - 1].gemm != nullptr);
      }
    }
  }
}

#if defined(__x86_64__)
TEST("on AVX2 a panel that the first cache does not hold is narrower, and is read for more rows at once") {
  const TileSet& set = avx2::kTiles;
  const TileShape shallow = choose_tile(set, TileElement::kFloat, 196, 768, 64);
  const TileShape deep = choose_tile(set, TileElement::kFloat, 196, 768, 768);
  CHECK(deep.rows * deep.vectors + deep.vectors < set.registers);
  CHECK(deep.rows >= 3 * deep.vectors);  // so many multiplications for each vector that is read
  CHECK(deep.vectors < shallow.vectors);
}

TEST("on AVX-512 a layer's depth does not change its tile") {
  const TileSet& set = avx512f::kTiles;
  for (const std::size_t rows : Sizes{49, 197}) {
    const TileShape shallow = choose_tile(set, TileElement::kFloat, rows, 768, 128);
    const TileShape deep = choose_tile(set, TileElement::kFloat, rows, 768, 3072);
    CHECK(deep.vectors == shallow.vectors);
    CHECK(deep.rows == shallow.rows);
  }
}
#endif

TEST("Winograd's method is for layers that are wide enough") {
  const auto pays = [](std::size_t channels, std::size_t results, std::size_t side) {
    WinogradSizes sizes;
    sizes.batch = 1;
    sizes.channels = sizes.pixel = channels;
    sizes.results = sizes.result_pixel = results;
    sizes.height = sizes.width = sizes.result_height = sizes.result_width = side;
    sizes.top = sizes.left = 1;
    return winograd_pays(*float_tiles(), sizes);
  };
  if (winograd_kernels(float_tiles()) != nullptr) {
    CHECK(pays(64, 64, 56));
    CHECK(!pays(3, 64, 224));
    CHECK(!pays(64, 3, 224));
  }
}

TEST("AMX computes wide and deep layers, and vectors compute the others") {
  const auto by_vectors = [](const ByteProduct& product) {
    return vector_cycles(product) < tile_cycles(product);
  };
  CHECK(!by_vectors({56 * 56, 64, 9, 64, 1}));  // ResNet
  CHECK(!by_vectors({7 * 7, 512, 9, 512, 1}));
  CHECK(!by_vectors({112 * 112, 64, 1, 147, 1}));  // its first layer, by im2col
  CHECK(by_vectors({112 * 112, 32, 9, 3, 1}));     // MobileNet's
  CHECK(by_vectors({112 * 112, 16, 1, 32, 1}));
  CHECK(by_vectors({56 * 56, 24, 1, 96, 1}));
  CHECK(!by_vectors({7 * 7, 320, 1, 960, 1}));
  CHECK(by_vectors({1, 1000, 1, 1280, 1}));
  CHECK(by_vectors({28 * 28, 8, 9, 8, 26}));  // groups
}
