// Our kernels for products in float32, and how one is chosen.

#include "check.h"
#include "lean/kernels/elements.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/tile_choice.h"

using namespace slipway::lean;

namespace {

using Sizes = std::initializer_list<std::size_t>;

constexpr float kNoLimit = std::numeric_limits<float>::infinity();

// Elements that lie at an aligned address, with room behind them.
class Floats {
 public:
  explicit Floats(std::size_t count, std::uint32_t seed = 0) : memory_(count + 64), count_(count) {
    const std::size_t unaligned = reinterpret_cast<std::uintptr_t>(memory_.data()) / sizeof(float) % 16;
    data_ = memory_.data() + (16 - unaligned) % 16;
    for (std::size_t i = 0; i < count && seed != 0; ++i) {
      seed = seed * 1664525U + 1013904223U;
      data_[i] = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
    }
  }
  float* data() { return data_; }
  float& operator[](std::size_t i) { return data_[i]; }
  std::size_t size() const { return count_; }

 private:
  std::vector<float> memory_;
  std::size_t count_;
  float* data_;
};

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

template <typename Member, typename Function>
void for_each_tile_of(Member kind, Function function) {
  for (const TileSet* set : sets()) {
    for (std::size_t vectors = 1; vectors <= kMostTileVectors; ++vectors) {
      for (std::size_t rows = 1; rows <= kMostTileRows; ++rows) {
        if ((set->*kind)[vectors - 1][rows - 1].gemm != nullptr) {
          function(*set, (set->*kind)[vectors - 1][rows - 1], rows, vectors * set->lanes);
        }
      }
    }
  }
}

bool is_close(float found, double expected) {
  return std::abs(static_cast<double>(found) - expected) <= 1e-5 * (1 + std::abs(expected));
}

}  // namespace

TEST("every tile's product is that of a plain loop, for fewer rows, odd depths and half panels") {
  for_each_tile_of(&TileSet::tiles, [](const TileSet& set, const Tile<float>& tile, std::size_t rows,
                                       std::size_t panel) {
    for (const std::size_t depth : Sizes{1, 2, 3, 5, 17, 32}) {
      for (const std::size_t columns : Sizes{1, panel - 1, panel, panel + 3, 2 * panel}) {
        const std::size_t panels = (columns + panel - 1) / panel;
        Floats weights(columns * depth, 1);
        Floats bias(columns, 2);
        Floats packed(panels * panel * (depth + 1));
        set.pack_rows(columns, depth, panel, weights.data(), bias.data(), packed.data(), 0, panels);
        for (std::size_t some = 1; some <= rows; ++some) {
          Floats a(some * depth, 3);
          Floats c(some * columns + 1);
          c[some * columns] = 7;
          const float limits[] = {-kNoLimit, kNoLimit};
          tile.gemm(some, columns, depth * sizeof(float), a.data(), depth * sizeof(float), packed.data(),
                    c.data(), columns * sizeof(float), panel * sizeof(float), limits);
          CHECK(c[some * columns] == 7);  // nothing behind the result
          for (std::size_t m = 0; m < some; ++m) {
            for (std::size_t n = 0; n < columns; ++n) {
              double sum = static_cast<double>(bias[n]);
              for (std::size_t k = 0; k < depth; ++k) {
                sum += static_cast<double>(a[m * depth + k]) * static_cast<double>(weights[n * depth + k]);
              }
              CHECK(is_close(c[m * columns + n], sum));
            }
          }
        }
      }
    }
  });
}

TEST("halves are multiplied and added as float32, and rounded once") {
  // 1.5 and 3 as halves, 1.5 * 3 * depth + 3 as sums.
  constexpr Half kOneAndAHalf{0x3e00};
  constexpr Half kThree{0x4200};
  const Half limits[] = {{0xfc00}, {0x7c00}};  // infinities
  for_each_tile_of(&TileSet::halves, [&](const TileSet& set, const Tile<Half>& tile, std::size_t rows,
                                         std::size_t panel) {
    const std::size_t columns = panel + 3;
    for (const std::size_t depth : Sizes{1, 40, 300}) {
      const std::vector<Half> a(rows * depth, kOneAndAHalf);
      const std::vector<Half> weights(columns * depth, kThree);
      const std::vector<Half> bias(columns, kThree);
      const std::vector<float> wide_weights(columns * depth, 3.0F);
      const std::vector<float> wide_bias(columns, 3.0F);
      std::vector<Half> packed(2 * panel * (depth + 1));
      std::vector<Half> rounded(packed.size());
      set.pack_halves(columns, depth, panel, weights.data(), bias.data(), packed.data(), 0, 2);
      set.pack_rounded(columns, depth, panel, wide_weights.data(), wide_bias.data(), rounded.data(), 0, 2);
      CHECK(std::memcmp(packed.data(), rounded.data(), packed.size() * sizeof(Half)) == 0);
      std::vector<Half> c(rows * columns + 1, kThree);
      tile.gemm(rows, columns, depth * sizeof(Half), a.data(), depth * sizeof(Half), packed.data(), c.data(),
                columns * sizeof(Half), panel * sizeof(Half), limits);
      // 7.5, 183 and 1353: exact as halves.
      const std::uint16_t expected = depth == 1 ? 0x4780 : depth == 40 ? 0x59b8 : 0x6549;
      CHECK(std::all_of(c.begin(), c.end() - 1, [&](Half one) { return one.bits == expected; }));
      CHECK(c.back().bits == kThree.bits);
    }
  });
}

TEST("a depthwise kernel in float16 adds in float32, and keeps what is behind the last channel apart") {
  constexpr Half kNotANumber = {0x7e00};
  // A sum of these is not a half: one that is rounded twice, or in another direction, is another number.
  const auto small = [](std::size_t i) {
    return half_to_float(float_to_half(static_cast<float>(i * 2654435761U >> 7 & 1023U) / 97 - 5));
  };
  for (const TileSet* set : sets()) {
    for (const Depthwise<Half>& kernel : set->half_depthwise) {
      for (const std::size_t channels :
           Sizes{1, 8, set->lanes, 2 * set->lanes + 3, 2 * set->lanes + 9, 2 * set->lanes + 13}) {
        for (const std::size_t width : Sizes{1, 3, 7}) {
          const std::size_t lanes = set->lanes;
          const std::size_t taps = kernel.taps;
          const std::size_t tiles = (channels + lanes - 1) / lanes;
          const auto weight = [&](std::size_t i) { return i / lanes % (taps + 1) == 0 ? 300.0F : small(i); };
          std::vector<Half> weights(tiles * lanes * (taps + 1));
          for (std::size_t i = 0; i < weights.size(); ++i) {
            weights[i].bits = float_to_half(weight(i));
          }
          std::vector<std::vector<Half>> pixels;
          std::vector<const Half*> pointers;
          for (std::size_t i = 0; i < taps * width; ++i) {
            pixels.emplace_back(channels + 8, kNotANumber);  // 16 bytes behind them
            for (std::size_t c = 0; c < channels; ++c) {
              pixels.back()[c].bits = float_to_half(small(i * 31 + c));
            }
          }
          for (const std::vector<Half>& pixel : pixels) {
            pointers.push_back(pixel.data());
          }
          std::vector<Half> result(channels * width + 1, kNotANumber);
          const Half limits[] = {{float_to_half(-60)}, {float_to_half(400)}};
          kernel.kernel(channels, width, pointers.data(), weights.data(), result.data(),
                        static_cast<std::ptrdiff_t>(taps * sizeof(void*)), 0, 0, nullptr, limits);
          CHECK(result[channels * width].bits == kNotANumber.bits);
          for (std::size_t x = 0; x < width; ++x) {
            for (std::size_t c = 0; c < channels; ++c) {
              const std::size_t column = c / lanes * lanes * (taps + 1) + c % lanes;
              float sum = weight(column);
              for (std::size_t tap = 0; tap < taps; ++tap) {
                sum += small((x * taps + tap) * 31 + c) * weight(column + (tap + 1) * lanes);
              }
              sum = std::min(std::max(sum, -60.0F), 400.0F);
              CHECK(result[x * channels + c].bits == float_to_half(sum));
            }
          }
        }
      }
    }
  }
}

TEST("four bytes of every column are packed together by vectors, and summed") {
  for (const TileSet* set : sets()) {
    for (const int fixed : {0, -128, 127}) {  // 0: noise; otherwise the largest sums
      for (const std::size_t count : {4 * set->lanes, 4 * set->lanes + 4, std::size_t{252}, kMostQuadBytes}) {
        const std::size_t stride = count + 3;
        const std::size_t step = set->lanes * 4 + 12;
        std::vector<std::int8_t> columns(set->lanes * stride);
        std::uint32_t seed = 5;
        for (std::int8_t& byte : columns) {
          seed = seed * 1664525U + 1013904223U;
          byte = static_cast<std::int8_t>(fixed == 0 ? static_cast<int>(seed >> 24) - 128 : fixed);
        }
        std::vector<std::uint8_t> packed(count / 4 * step, 0x5a);
        std::vector<std::uint8_t> expected = packed;
        std::vector<std::int32_t> sums(set->lanes, 1000);
        std::vector<std::int32_t> totals = sums;
        for (std::size_t n = 0; n < set->lanes; ++n) {
          for (std::size_t k = 0; k < count; ++k) {
            const std::int8_t byte = columns[n * stride + k];
            expected[k / 4 * step + n * 4 + k % 4] = static_cast<std::uint8_t>(byte);
            totals[n] += byte;
          }
        }
        set->pack_quads(columns.data(), stride, count, packed.data(), step, sums.data());
        CHECK(packed == expected);
        CHECK(sums == totals);
      }
    }
  }
}

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

TEST("kernels of ours have names, and others have not") {
  const TileSet* set = float_tiles();
  if (set != nullptr) {
    CHECK(tile_name(reinterpret_cast<void (*)()>(set->tiles[1][3].gemm)) ==
          "slipway_f32_gemm_4x" + std::to_string(2 * set->lanes) + "__" + set->isa);
    CHECK(tile_name(reinterpret_cast<void (*)()>(set->depthwise[0].kernel)) ==
          std::string("slipway_f32_dwconv_9p__") + set->isa);
    CHECK(tile_name(reinterpret_cast<void (*)()>(set->half_depthwise[1].kernel)) ==
          std::string("slipway_f16_f32acc_dwconv_25p__") + set->isa);
  }
  CHECK(tile_name(reinterpret_cast<void (*)()>(&std::memcpy)).empty());
}
