#include "lean/xnnpack/panel_packing.h"

#include <xnnpack/config.h>
#include <xnnpack/microfnptr.h>
#include <xnnpack/pack.h>

#include <algorithm>
#include <cstring>

#include "lean/xnnpack/byte_tile.h"
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

namespace {

using PackBlocks = xnn_packw_gemm_goi_bl_ukernel_fn;

constexpr std::size_t kGroup = kInt4Together / 2;  // neighbours in a kernel's row of bytes: its kr
constexpr std::size_t kPanelsTogether = 2;
constexpr std::size_t kColumnsTogether = 16;

pthreadpool_t threads_now = nullptr;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
constexpr bool kLittle = true;
#else
constexpr bool kLittle = false;
#endif

using Bytes16 [[gnu::vector_size(16)]] = std::uint8_t;

// The next 16 int4 weights of two columns, in 8 bytes each, become two times 8 bytes: a weight and the eighth
// one behind it in each. `totals`: the columns' sums of weights.
inline void pack_two(const std::uint8_t* one, const std::uint8_t* other, std::uint8_t* to,
                     std::int32_t* totals) {
  Bytes16 both;
  std::memcpy(&both, one, kGroup);
  std::memcpy(reinterpret_cast<std::uint8_t*>(&both) + kGroup, other, kGroup);
  const Bytes16 even = both & 0x0f;
  const Bytes16 odd = both >> 4;
  const Bytes16 first =
      __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const Bytes16 second =
      __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  const Bytes16 low =
      __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
  const Bytes16 high =
      __builtin_shufflevector(first, second, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  const Bytes16 packed = (low | high << 4) ^ 0x88;
  std::memcpy(to, &packed, sizeof(packed));
  const Bytes16 sums = low + high;
  std::uint64_t halves[2];
  std::memcpy(halves, &sums, sizeof(halves));
  totals[0] = static_cast<std::int32_t>(halves[0] * 0x0101010101010101U >> 56);
  totals[1] = static_cast<std::int32_t>(halves[1] * 0x0101010101010101U >> 56);
}

inline float widened(std::uint16_t bfloat16) {
  const std::uint32_t bits = std::uint32_t{bfloat16} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Columns `begin` and so many behind it of a panel; weights and scales are theirs.
void pack_columns(const Int4Panels& panels, const std::uint8_t* weights, const std::uint16_t* scales,
                  std::int32_t input_zero, std::uint8_t* packed, std::size_t begin, std::size_t count) {
  const std::size_t row_bytes = panels.depth / 2;
  const std::size_t blocks = panels.depth / panels.block;
  const auto zero = static_cast<float>(input_zero);
  std::uint8_t* starts = packed + begin * sizeof(float);
  std::uint8_t* to = packed + panels.panel * sizeof(float) + begin * kGroup;
  float sums[kColumnsTogether];
  float scale[kColumnsTogether] = {};
  std::int32_t totals[kColumnsTogether] = {};
  std::memcpy(sums, starts, count * sizeof(float));
  for (std::size_t block = 0; block < blocks; ++block, to += panels.block_extra) {
    for (std::size_t n = 0; n < count; ++n) {
      scale[n] = widened(scales[n * blocks + block]);
    }
    const std::uint8_t* from = weights + block * panels.block / 2;
    for (std::size_t k = 0; k < panels.block; k += kInt4Together, from += kGroup) {
      std::size_t n = 0;
      for (; n + 2 <= count; n += 2) {
        pack_two(from + n * row_bytes, from + (n + 1) * row_bytes, to + n * kGroup, totals + n);
      }
      if (n < count) {
        std::uint8_t alone[2 * kGroup];
        std::int32_t total[2];
        pack_two(from + n * row_bytes, from + n * row_bytes, alone, total);
        std::memcpy(to + n * kGroup, alone, kGroup);
        totals[n] = total[0];
      }
      for (n = 0; n < count; ++n) {
        const std::int32_t above = totals[n] - 8 * static_cast<std::int32_t>(kInt4Together);
        sums[n] = sums[n] - static_cast<float>(above) * zero * scale[n];
      }
      to += panels.panel * kGroup;
    }
  }
  std::memcpy(starts, sums, count * sizeof(float));
}

using Words4 [[gnu::vector_size(16)]] = std::uint32_t;

// A column's next 32 int4 weights in our kernel's order: four bytes have a weight and the fourth one behind
// it in each. `totals`: the sums of the first and of the last sixteen.
inline Words4 pack_quads(const std::uint8_t* from, std::int32_t* totals) {
  Bytes16 both;
  std::memcpy(&both, from, sizeof(both));
  const Bytes16 even = both & 0x0f;
  const Bytes16 odd = both >> 4;
  const Bytes16 low =
      __builtin_shufflevector(even, odd, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  const Bytes16 high =
      __builtin_shufflevector(even, odd, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  const Bytes16 sums = low + high;
  std::uint64_t halves[2];
  std::memcpy(halves, &sums, sizeof(halves));
  totals[0] = static_cast<std::int32_t>(halves[0] * 0x0101010101010101U >> 56);
  totals[1] = static_cast<std::int32_t>(halves[1] * 0x0101010101010101U >> 56);
  const Bytes16 packed = (low | high << 4) ^ 0x88;
  Words4 words;
  std::memcpy(&words, &packed, sizeof(words));
  return words;
}

// So many columns of a panel of our kernel's, from the first on. The sums are added as above, so they have
// the bits that XNNPACK's kernels for this processor read.
void pack_quad_columns(const Int4Panels& panels, const std::uint8_t* weights, const std::uint16_t* scales,
                       std::int32_t input_zero, std::uint8_t* packed, std::size_t count) {
  constexpr std::size_t kUnit = 2 * kInt4Together;
  constexpr std::size_t kWordsApart = kInt4Columns * kInt4Depth;
  const std::size_t row_bytes = panels.depth / 2;
  const std::size_t blocks = panels.depth / panels.block;
  const auto zero = static_cast<float>(input_zero);
  float sums[kInt4Columns] = {};
  std::uint8_t* to = packed + sizeof(sums);
  for (std::size_t block = 0; block < blocks; ++block, to += panels.block_extra) {
    const std::uint8_t* from = weights + block * panels.block / 2;
    for (std::size_t k = 0; k < panels.block; k += kUnit, from += kUnit / 2, to += 4 * kWordsApart) {
      std::int32_t totals[kInt4Columns][2] = {};
      for (std::size_t n = 0; n < count; n += 4) {
        Words4 columns[4] = {};
        for (std::size_t i = 0; i < std::min<std::size_t>(count - n, 4); ++i) {
          columns[i] = pack_quads(from + (n + i) * row_bytes, totals[n + i]);
        }
        const Words4 half[4] = {__builtin_shufflevector(columns[0], columns[1], 0, 4, 1, 5),
                                __builtin_shufflevector(columns[2], columns[3], 0, 4, 1, 5),
                                __builtin_shufflevector(columns[0], columns[1], 2, 6, 3, 7),
                                __builtin_shufflevector(columns[2], columns[3], 2, 6, 3, 7)};
        for (std::size_t i = 0; i < 4; i += 2) {
          const Words4 even = __builtin_shufflevector(half[i], half[i + 1], 0, 1, 4, 5);
          const Words4 odd = __builtin_shufflevector(half[i], half[i + 1], 2, 3, 6, 7);
          std::memcpy(to + i * kWordsApart + n * kInt4Depth, &even, sizeof(even));
          std::memcpy(to + (i + 1) * kWordsApart + n * kInt4Depth, &odd, sizeof(odd));
        }
      }
      for (std::size_t n = 0; n < count; ++n) {
        const float scale = widened(scales[n * blocks + block]);
        for (const std::int32_t total : totals[n]) {
          const std::int32_t above = total - 8 * static_cast<std::int32_t>(kInt4Together);
          sums[n] = sums[n] - static_cast<float>(above) * zero * scale;
        }
      }
    }
  }
  std::memcpy(packed, sums, count * sizeof(float));
}

struct Job {
  Int4Panels panels;
  const std::uint8_t* weights;
  const std::uint16_t* scales;
  std::int32_t input_zero;
  std::uint8_t* packed;
};

void pack_some(void* context, std::size_t first, std::size_t count) {
  const auto& job = *static_cast<const Job*>(context);
  pack_int4(job.panels, job.weights, job.scales, job.input_zero, job.packed, first, first + count);
}

void pack_blocks(std::size_t groups, std::size_t columns, std::size_t depth, std::size_t panel,
                 std::size_t kr, std::size_t sr, std::size_t block, const void* weights, const void* bias,
                 const void* scales, void* packed, std::size_t block_extra, std::size_t panel_extra,
                 const void* params) {
  const auto& zeros = *static_cast<const xnn_qs8_qc4w_packing_params*>(params);
  const bool quads = kr == kInt4Depth && panel == kInt4Columns && block % (2 * kInt4Together) == 0;
  const bool fits = kLittle && groups == 1 && (kr == kGroup || quads) && sr == 1 &&
                    depth % kInt4Together == 0 && block % kInt4Together == 0 && depth % block == 0 &&
                    bias == nullptr && zeros.kernel_zero_point == 8;
  if (!fits) {
    xnn_pack_qs8_qb4w_gemm_goi_w(groups, columns, depth, panel, kr, sr, block,
                                 static_cast<const std::uint8_t*>(weights), static_cast<const float*>(bias),
                                 static_cast<const xnn_bfloat16*>(scales), packed, block_extra, panel_extra,
                                 &zeros);
    return;
  }
  Job job = {{columns, depth, panel, block, block_extra, panel_extra, kr == kInt4Depth},
             static_cast<const std::uint8_t*>(weights),
             static_cast<const std::uint16_t*>(scales),
             zeros.input_zero_point,
             static_cast<std::uint8_t*>(packed)};
  pthreadpool_parallelize_1d_tile_1d(threads_now, &pack_some, &job, job.panels.count(), kPanelsTogether, 0);
}

// Where the table has XNNPACK's function, or ours in its place.
void replace(const xnn_gemm_config* config, PackBlocks from, PackBlocks to) {
  if (config != nullptr && config->pack_gemm_goi_bl == from) {
    const_cast<xnn_gemm_config*>(config)->pack_gemm_goi_bl = to;
  }
}

void replace_all(PackBlocks from, PackBlocks to) {
  replace(xnn_init_qd8_f32_qb4w_gemm_config(), from, to);
  replace(xnn_init_qd8_f16_qb4w_gemm_config(), from, to);
}

PackBlocks theirs() {
  return reinterpret_cast<PackBlocks>(&xnn_pack_qs8_qb4w_gemm_goi_w);
}

}  // namespace

void pack_int4(const Int4Panels& panels, const std::uint8_t* weights, const std::uint16_t* scales,
               std::int32_t input_zero, std::uint8_t* packed, std::size_t first, std::size_t last) {
  const std::size_t row_bytes = panels.depth / 2;
  for (std::size_t at = first; at < last; ++at) {
    const std::size_t some = std::min(panels.panel, panels.columns - at * panels.panel);
    if (panels.quads) {
      const std::size_t column = at * panels.panel;
      pack_quad_columns(panels, weights + column * row_bytes, scales + column * (panels.depth / panels.block),
                        input_zero, packed + at * panels.panel_bytes(), some);
      continue;
    }
    for (std::size_t begin = 0; begin < some; begin += kColumnsTogether) {
      const std::size_t column = at * panels.panel + begin;
      pack_columns(panels, weights + column * row_bytes, scales + column * (panels.depth / panels.block),
                   input_zero, packed + at * panels.panel_bytes(), begin,
                   std::min(kColumnsTogether, some - begin));
    }
  }
}

Int4Packing::Int4Packing(pthreadpool_t threads) {
  threads_now = threads;
  replace_all(theirs(), &pack_blocks);
}

Int4Packing::~Int4Packing() {
  replace_all(&pack_blocks, theirs());
  threads_now = nullptr;
}

}  // namespace slipway::lean
