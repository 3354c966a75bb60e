#include "lean/xnnpack/byte_packing.h"

#include <algorithm>
#include <cstring>

#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {
namespace {

// So many bytes of a column are packed before the next column's: a panel's part of them stays in a core's
// first cache. And their sums fit into 16 bits.
constexpr std::size_t kBytesOfColumn = 256;
constexpr std::size_t kEight = 8;
constexpr std::size_t kMostLanes = 16;
static_assert(kBytesOfColumn <= kMostQuadBytes, "sums of a call fit into their bits");

constexpr std::uint64_t kEverySecondByte = 0x00ff00ff00ff00ffU;
constexpr std::uint64_t kTopBits = 0x8080808080808080U;

// Every kTogether bytes go `step` after those before. Returns their sum.
template <std::size_t kTogether>
std::int32_t pack_column(const std::int8_t* from, std::size_t count, std::uint8_t* to, std::size_t step) {
  std::uint64_t sums = 0;
  std::size_t k = 0;
  for (; k + kEight <= count; k += kEight) {
    std::uint64_t eight;
    std::memcpy(&eight, from + k, kEight);
    for (std::size_t part = 0; part < kEight; part += kTogether, to += step) {
      std::memcpy(to, from + k + part, kTogether);
    }
    const std::uint64_t above = eight ^ kTopBits;  // by 128 more
    sums += (above & kEverySecondByte) + (above >> 8 & kEverySecondByte);
  }
  const auto total = static_cast<std::int32_t>(sums * 0x0001000100010001U >> 48);
  std::int32_t sum = total - 128 * static_cast<std::int32_t>(k);
  for (; k < count; k += kTogether, to += step) {
    std::int8_t last[kTogether] = {};
    std::memcpy(last, from + k, std::min(kTogether, count - k));
    for (const std::int8_t weight : last) {
      sum += weight;
    }
    std::memcpy(to, last, kTogether);
  }
  return sum;
}

// Numbers in packed weights may lie at any address.
std::uint32_t start_of(const std::uint8_t* packed) {
  std::uint32_t start;
  std::memcpy(&start, packed, sizeof(start));
  return start;
}

void set_start(std::uint8_t* packed, std::uint32_t start) {
  std::memcpy(packed, &start, sizeof(start));
}

void subtract_sum(std::uint8_t* packed, std::size_t column, std::int32_t input_zero, std::int32_t sum) {
  std::uint8_t* at = packed + column * sizeof(std::int32_t);
  set_start(at, start_of(at) - static_cast<std::uint32_t>(sum) * static_cast<std::uint32_t>(input_zero));
}

// Packs columns of a panel by vectors, and returns how many.
std::size_t pack_some_quads(const PanelSizes& sizes, const std::int8_t* from, std::size_t count,
                            std::uint8_t* to, std::size_t columns, std::int32_t input_zero,
                            std::uint8_t* packed) {
  const TileSet* set = float_tiles();
  const std::size_t whole = count / 4 * 4;
  if (set == nullptr || whole < 4 * set->lanes) {
    return 0;
  }
  const std::size_t step = sizes.panel * 4;
  std::size_t n = 0;
  for (; n + set->lanes <= columns; n += set->lanes) {
    std::int32_t sums[kMostLanes] = {};
    const std::int8_t* some = from + n * sizes.column_bytes();
    set->pack_quads(some, sizes.column_bytes(), whole, to + n * 4, step, sums);
    for (std::size_t i = 0; i < set->lanes; ++i) {
      sums[i] += pack_column<4>(some + i * sizes.column_bytes() + whole, count - whole,
                                to + whole * sizes.panel + (n + i) * 4, step);
      subtract_sum(packed, n + i, input_zero, sums[i]);
    }
  }
  return n;
}

template <std::size_t kTogether>
void pack_byte_panel(const PanelSizes& sizes, const std::int8_t* weights, const std::int32_t* bias,
                     std::int32_t input_zero, std::uint8_t* packed, std::size_t columns) {
  for (std::size_t n = 0; n < columns; ++n) {
    set_start(packed + n * sizeof(std::int32_t), bias == nullptr ? 0 : static_cast<std::uint32_t>(bias[n]));
  }
  std::uint8_t* to = packed + sizes.panel * sizeof(std::int32_t);
  for (std::size_t w = 0; w < sizes.window; ++w, to += sizes.panel * sizes.padded_depth()) {
    for (std::size_t k = 0; k < sizes.depth; k += kBytesOfColumn) {
      const std::size_t count = std::min(kBytesOfColumn, sizes.depth - k);
      const std::int8_t* from = weights + w * sizes.depth + k;
      std::uint8_t* part = to + k * sizes.panel;
      std::size_t n = 0;
      if constexpr (kTogether == 4) {
        n = pack_some_quads(sizes, from, count, part, columns, input_zero, packed);
      }
      for (; n < columns; ++n) {
        subtract_sum(packed, n, input_zero,
                     pack_column<kTogether>(from + n * sizes.column_bytes(), count, part + n * kTogether,
                                            sizes.panel * kTogether));
      }
    }
  }
}

}  // namespace

bool packs_bytes(const PanelSizes& sizes) {
  return sizes.element == 1 && sizes.bias == sizeof(std::int32_t) && sizes.sr == 1 &&
         (sizes.kr == 4 || sizes.kr == kEight);
}

void pack_bytes(const PanelSizes& sizes, const std::int8_t* weights, const std::int32_t* bias,
                std::int32_t input_zero, std::uint8_t* packed, std::size_t first, std::size_t last) {
  const auto pack = sizes.kr == kEight ? &pack_byte_panel<kEight> : &pack_byte_panel<4>;
  for (std::size_t at = first; at < last; ++at) {
    const std::size_t begin = at * sizes.panel;
    pack(sizes, weights + begin * sizes.column_bytes(), bias == nullptr ? nullptr : bias + begin, input_zero,
         packed + at * sizes.panel_bytes(), std::min(sizes.panel, sizes.columns - begin));
  }
}

}  // namespace slipway::lean
