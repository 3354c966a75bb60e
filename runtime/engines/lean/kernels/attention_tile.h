// Attention of a few rows over a part of a cache: scores, an online softmax, and the sum of values, a tile of
// positions at a time.
//
// One text for all widths of vectors. Nothing of the C++ library: files with an instruction set of their own
// include this (matrix_tiles_avx2.cpp says why).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lean/kernels/vector_math.h"

namespace slipway::lean {

// How keys and values are stored.
enum class CacheType : std::uint8_t { kFloat, kHalf, kBFloat16, kByte };

// What one head has of each position: keys, or values.
struct HeadRows {
  const std::uint8_t* data;
  std::size_t step;  // elements from one position to the next
  CacheType type;
  const float* scales;  // of bytes: one a position
  const std::int8_t* zero_points;
  std::size_t scale_step;  // from one position's to the next
};

// Positions of the cache that are worked on together.
inline constexpr std::size_t kAttentionTile = 64;

// Rows are the queries of a position in all heads that share keys, then those of the next position. Their
// softmax may have begun with other positions of the cache: `largest`, `total` and `sums` go on from there.
struct AttentionPart {
  std::size_t rows;
  std::size_t dim;
  std::size_t width;  // dim, rounded up to whole vectors: from one row of `query` or `sums` to the next
  std::size_t first;  // positions of the cache
  std::size_t last;
  HeadRows keys;
  HeadRows values;
  const float* query;         // [rows][width], scaled; zeros behind dim
  const std::size_t* seen;    // [rows]: the position behind the last one that the row sees
  const float* const* masks;  // [rows]: added to the scores, one for each position; nullptr: none
  float* largest;             // [rows], scores
  float* total;               // [rows], of the weights e^(score - largest)
  float* sums;                // [rows][width], of the values by their weights
  float* scores;              // [rows][kAttentionTile]
  float* widened;             // [2][kAttentionTile][width], for what is not stored as whole vectors of floats
};

// The vectors of a processor, and what computes with them.
struct AttentionTiles {
  std::size_t lanes;
  void (*attend)(const AttentionPart& part);
};

// For 64-bit x86.
namespace avx2 {
extern const AttentionTiles kAttentionTiles;
}
namespace avx512f {
extern const AttentionTiles kAttentionTiles;
}

namespace attention {

template <std::size_t Bytes>
struct Lanes {
  using Vector [[gnu::vector_size(Bytes)]] = float;
  static constexpr std::size_t kCount = Bytes / sizeof(float);
};
using Four = Lanes<16>::Vector;

// The sums of every fourth element.
template <std::size_t Bytes>
[[gnu::always_inline]] inline Four folded(typename Lanes<Bytes>::Vector x) {
  if constexpr (Bytes == sizeof(Four)) {
    return x;
  } else {
    typename Lanes<Bytes / 2>::Vector halves[2];
    __builtin_memcpy(halves, &x, sizeof(halves));
    return folded<Bytes / 2>(halves[0] + halves[1]);
  }
}

// The sums of four vectors' elements.
template <std::size_t Bytes>
[[gnu::always_inline]] inline Four sums_of(const typename Lanes<Bytes>::Vector* vectors) {
  const Four a = folded<Bytes>(vectors[0]);
  const Four b = folded<Bytes>(vectors[1]);
  const Four c = folded<Bytes>(vectors[2]);
  const Four d = folded<Bytes>(vectors[3]);
  const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

// Some positions as floats, [count][width]; zeros behind dim.
template <std::size_t Bytes>
void widen(const HeadRows& rows, std::size_t first, std::size_t count, std::size_t dim, std::size_t width,
           float* __restrict to) {
  for (std::size_t i = 0; i < count; ++i, to += width) {
    const std::size_t at = (first + i) * rows.step;
    const auto* halves = reinterpret_cast<const std::uint16_t*>(rows.data) + at;
    switch (rows.type) {
      case CacheType::kFloat:
        __builtin_memcpy(to, rows.data + at * sizeof(float), dim * sizeof(float));
        break;
      case CacheType::kHalf:
        for (std::size_t d = 0; d < dim; ++d) {
          to[d] = half_to_float(halves[d]);
        }
        break;
      case CacheType::kBFloat16:
        for (std::size_t d = 0; d < dim; ++d) {
          to[d] = bfloat16_to_float(halves[d]);
        }
        break;
      case CacheType::kByte: {
        const auto* bytes = reinterpret_cast<const std::int8_t*>(rows.data) + at;
        const float scale = rows.scales[(first + i) * rows.scale_step];
        const auto zero = static_cast<float>(rows.zero_points[(first + i) * rows.scale_step]);
        for (std::size_t d = 0; d < dim; ++d) {
          to[d] = (static_cast<float>(bytes[d]) - zero) * scale;
        }
        break;
      }
    }
    for (std::size_t d = dim; d < width; ++d) {
      to[d] = 0;
    }
  }
}

// Floats of some positions, and how far they are apart: where they lie, if that is in whole vectors.
struct Floats {
  const float* data;
  std::size_t step;
};
template <std::size_t Bytes>
Floats floats_of(const HeadRows& rows, std::size_t first, std::size_t count, std::size_t dim,
                 std::size_t width, float* room) {
  if (rows.type == CacheType::kFloat && dim == width) {
    return {reinterpret_cast<const float*>(rows.data) + first * rows.step, rows.step};
  }
  widen<Bytes>(rows, first, count, dim, width, room);
  return {room, width};
}

// Scores of some rows and four positions, of which the last may be there several times.
template <std::size_t Bytes, std::size_t Rows>
void score_four(const float* query, std::size_t width, const float* const* keys, float* scores) {
  typename Lanes<Bytes>::Vector sums[Rows][4] = {};
  for (std::size_t d = 0; d < width; d += Lanes<Bytes>::kCount) {
    typename Lanes<Bytes>::Vector key[4];
    for (std::size_t k = 0; k < 4; ++k) {
      __builtin_memcpy(&key[k], keys[k] + d, Bytes);
    }
    for (std::size_t r = 0; r < Rows; ++r) {
      typename Lanes<Bytes>::Vector row;
      __builtin_memcpy(&row, query + r * width + d, Bytes);
      for (std::size_t k = 0; k < 4; ++k) {
        sums[r][k] += row * key[k];
      }
    }
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    const Four found = sums_of<Bytes>(sums[r]);
    __builtin_memcpy(scores + r * kAttentionTile, &found, sizeof(found));
  }
}

// Scores of all rows and a tile's positions.
template <std::size_t Bytes>
void score(const AttentionPart& part, Floats keys, std::size_t count) {
  for (std::size_t k = 0; k < count; k += 4) {
    const float* four[4];
    for (std::size_t i = 0; i < 4; ++i) {
      four[i] = keys.data + (k + i < count ? k + i : count - 1) * keys.step;
    }
    std::size_t r = 0;
    for (; r + 2 <= part.rows; r += 2) {
      score_four<Bytes, 2>(part.query + r * part.width, part.width, four,
                           part.scores + r * kAttentionTile + k);
    }
    if (r < part.rows) {
      score_four<Bytes, 1>(part.query + r * part.width, part.width, four,
                           part.scores + r * kAttentionTile + k);
    }
  }
}

// A row's scores become weights; what was summed up before is scaled to the new largest score.
template <std::size_t Bytes>
void weigh(const AttentionPart& part, std::size_t r, std::size_t first, std::size_t count) {
  using Vector = typename Lanes<Bytes>::Vector;
  constexpr std::size_t kCount = Lanes<Bytes>::kCount;
  constexpr float kNone = -__builtin_inff();
  float* scores = part.scores + r * kAttentionTile;
  if (part.masks != nullptr) {
    const float* mask = part.masks[r] + first;
    for (std::size_t k = 0; k < count; ++k) {
      scores[k] += mask[k];
    }
  }
  for (std::size_t k = part.seen[r] < first ? 0 : part.seen[r] - first; k < kAttentionTile; ++k) {
    scores[k] = kNone;
  }
  for (std::size_t k = count; k < kAttentionTile; ++k) {
    scores[k] = kNone;
  }
  Vector best = Vector{} + part.largest[r];
  for (std::size_t k = 0; k < kAttentionTile; k += kCount) {
    Vector some;
    __builtin_memcpy(&some, scores + k, Bytes);
    best = some > best ? some : best;  // what is no number comes into the total
  }
  float each[kCount];
  __builtin_memcpy(each, &best, Bytes);
  float largest = each[0];
  for (std::size_t k = 1; k < kCount; ++k) {
    largest = each[k] > largest ? each[k] : largest;
  }
  const float from = largest == kNone ? 0.0F : largest;
  for (std::size_t k = 0; k < kAttentionTile; ++k) {
    scores[k] = exp_of(scores[k] - from);
  }
  Vector total = {};
  for (std::size_t k = 0; k < kAttentionTile; k += kCount) {
    Vector some;
    __builtin_memcpy(&some, scores + k, Bytes);
    total += some;
  }
  const Four four = folded<Bytes>(total);
  const float before = exp_of(part.largest[r] - from);
  part.total[r] = part.total[r] * before + ((four[0] + four[2]) + (four[1] + four[3]));
  if (before != 1.0F) {
    for (std::size_t d = 0; d < part.width; ++d) {
      part.sums[r * part.width + d] *= before;
    }
  }
  part.largest[r] = largest;
}

// Adds a tile's values by their weights to some rows' sums, Vectors vectors of them.
template <std::size_t Bytes, std::size_t Rows, std::size_t Vectors>
void add_values(const float* weights, Floats values, std::size_t count, float* sums, std::size_t width) {
  typename Lanes<Bytes>::Vector found[Rows][Vectors];
  for (std::size_t r = 0; r < Rows; ++r) {
    __builtin_memcpy(found[r], sums + r * width, sizeof(found[r]));
  }
  for (std::size_t k = 0; k < count; ++k) {
    typename Lanes<Bytes>::Vector row[Vectors];
    __builtin_memcpy(row, values.data + k * values.step, sizeof(row));
    for (std::size_t r = 0; r < Rows; ++r) {
      const float weight = weights[r * kAttentionTile + k];
      for (std::size_t v = 0; v < Vectors; ++v) {
        found[r][v] += weight * row[v];
      }
    }
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    __builtin_memcpy(sums + r * width, found[r], sizeof(found[r]));
  }
}

template <std::size_t Bytes, std::size_t Rows>
void add_rows(const AttentionPart& part, std::size_t r, Floats values, std::size_t count) {
  constexpr std::size_t kCount = Lanes<Bytes>::kCount;
  const float* weights = part.scores + r * kAttentionTile;
  std::size_t d = 0;
  for (; d + 2 * kCount <= part.width; d += 2 * kCount) {
    add_values<Bytes, Rows, 2>(weights, {values.data + d, values.step}, count, part.sums + r * part.width + d,
                               part.width);
  }
  if (d < part.width) {
    add_values<Bytes, Rows, 1>(weights, {values.data + d, values.step}, count, part.sums + r * part.width + d,
                               part.width);
  }
}

template <std::size_t Bytes>
void attend(const AttentionPart& part) {
  for (std::size_t first = part.first; first < part.last; first += kAttentionTile) {
    const std::size_t left = part.last - first;
    const std::size_t count = left < kAttentionTile ? left : kAttentionTile;
    score<Bytes>(part, floats_of<Bytes>(part.keys, first, count, part.dim, part.width, part.widened), count);
    for (std::size_t r = 0; r < part.rows; ++r) {
      weigh<Bytes>(part, r, first, count);
    }
    const Floats values = floats_of<Bytes>(part.values, first, count, part.dim, part.width,
                                           part.widened + kAttentionTile * part.width);
    constexpr decltype(&add_rows<Bytes, 1>) kAdd[] = {add_rows<Bytes, 1>, add_rows<Bytes, 2>,
                                                      add_rows<Bytes, 3>, add_rows<Bytes, 4>};
    for (std::size_t r = 0; r < part.rows; r += 4) {
      kAdd[part.rows - r < 4 ? part.rows - r - 1 : 3](part, r, values, count);
    }
  }
}

}  // namespace attention
}  // namespace slipway::lean
