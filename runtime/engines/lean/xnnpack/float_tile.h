// A product's tile, for the vectors `Vector` of the file that includes this. ON(name) ends a name with the
// instruction set: toolchains/inspect/isa.toml knows from it what the function may use.
//
// Nothing from the standard library's headers but types: a function of theirs that is compiled here would
// need this instruction set wherever the linker takes it for the others' copy.

#define INLINE inline __attribute__((always_inline))

namespace {

constexpr std::size_t kLanes = Vector::kLanes;

// Operands and results are of this type; sums are float32 all the same.
template <typename Element>
struct Panels {
  std::size_t columns;
  std::size_t depth;           // elements of a row, for each tap
  std::size_t taps;            // of a convolution's window
  const Element* const* rows;  // of the first tap
  std::size_t step;            // from a tap's rows to the next one's
  std::size_t offset;          // bytes to add to each row but `zero`
  const Element* zero;
  const Element* weights;  // for each panel: its bias, then for each tap and element its columns
  char* c;
  std::size_t c_stride;
  std::size_t panel_stride;
  float least;
  float greatest;
};

// What all windows of a depthwise convolution's call share.
template <typename Element>
struct Window {
  std::size_t offset;  // bytes to add to each row but `zero`
  const Element* zero;
  float least;
  float greatest;
};

// The greatest depth that is computed at once without more registers than there are. What is loaded for one
// element of a row serves the next, too: fewer loads of pointers, which do not all fit into registers.
template <std::size_t kRows, std::size_t kVectors>
constexpr std::size_t kTogether = kRows * kVectors + 4 * kVectors + 2 <= Vector::kRegisters   ? 4
                                  : kRows * kVectors + 2 * kVectors + 2 <= Vector::kRegisters ? 2
                                                                                              : 1;

INLINE float ON(to_float)(float value) {
  return value;
}

INLINE float ON(to_float)(Half value) {
  return _cvtsh_ss(value.bits);
}

template <typename Element, typename From>
INLINE Element ON(rounded)(From value) {
  if constexpr (sizeof(Element) == sizeof(From)) {
    return value;
  } else {
    return {_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)};
  }
}

INLINE void ON(store_some)(float* to, Vector::Type value, std::size_t count) {
  Vector::store_some(to, value, count);
}

INLINE void ON(store_some)(Half* to, Vector::Type value, std::size_t count) {
  alignas(2 * kLanes) Half all[kLanes];
  Vector::store(all, value);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = all[i];
  }
}

// A square of elements of rows that are `stride` apart becomes columns of a panel.
template <typename Element>
INLINE void ON(transpose)(const float* from, std::size_t stride, Element* to, std::size_t panel) {
  Vector::Type rows[kLanes];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    rows[i] = Vector::load_any(from + i * stride);
  }
  Vector::transpose(rows);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    Vector::store(to + i * panel, rows[i]);
  }
}

INLINE void ON(transpose)(const Half* from, std::size_t stride, Half* to, std::size_t panel) {
  Vector::transpose(from, stride, to, panel);
}

// Elements of a row that are made float32 at once, for rows of halves.
constexpr std::size_t kConverted = 256;

// A window's row: the elements of all taps, one tap behind the other.
using Gathered = float[kConverted];

template <std::size_t kRows, std::size_t kVectors, std::size_t kDepth, typename Element>
INLINE void ON(accumulate)(Vector::Type (&sums)[kRows][kVectors], const float* const (&rows)[kRows],
                           std::size_t k, const Element* weights) {
  Vector::Type columns[kDepth][kVectors];
#pragma GCC unroll 4
  for (std::size_t d = 0; d < kDepth; ++d) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      columns[d][v] = Vector::load(weights + (d * kVectors + v) * kLanes);
      Vector::prefetch(weights + (d * kVectors + v) * kLanes + kAhead);
    }
  }
#pragma GCC unroll 12
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t d = 0; d < kDepth; ++d) {
      const Vector::Type element = Vector::broadcast(rows[r] + k + d);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = Vector::multiply_add(element, columns[d][v], sums[r][v]);
      }
    }
  }
}

// Adds the products of `depth` elements of the rows; returns the weights that follow.
template <std::size_t kRows, std::size_t kVectors, typename Element>
INLINE const Element* ON(add)(Vector::Type (&sums)[kRows][kVectors], const float* const (&rows)[kRows],
                              std::size_t depth, const Element* weights) {
  constexpr std::size_t kDepth = kTogether<kRows, kVectors>;
  std::size_t k = 0;
  for (; k + kDepth <= depth; k += kDepth, weights += kDepth * kVectors * kLanes) {
    ON(accumulate)<kRows, kVectors, kDepth>(sums, rows, k, weights);
  }
  if constexpr (kDepth > 1) {
    for (; k < depth; ++k, weights += kVectors * kLanes) {
      ON(accumulate)<kRows, kVectors, 1>(sums, rows, k, weights);
    }
  }
  return weights;
}

template <std::size_t kRows, std::size_t kVectors>
INLINE const float* ON(tap)(Vector::Type (&sums)[kRows][kVectors], const float* (&rows)[kRows],
                            std::size_t depth, const float* weights, const Gathered*) {
  // What was added to the pointers stays added: the compiler would keep both parts, and add them for each
  // element.
  asm("" : "+m"(rows));
  return ON(add)<kRows, kVectors>(sums, rows, depth, weights);
}

// Apart: it is called by every tile, and would be in every tile.
__attribute__((noinline)) void ON(convert)(const Half* from, std::size_t count, float* to) {
  std::size_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    Vector::store(to + k, Vector::load_any(from + k));
  }
  for (; k < count; ++k) {
    to[k] = ON(to_float)(from[k]);
  }
}

// `source`: the Panels or the Window that the row is of.
template <typename Source, typename Element>
INLINE const Element* ON(row_of)(const Source& source, const Element* from) {
  return from == source.zero
             ? from
             : reinterpret_cast<const Element*>(reinterpret_cast<const char*>(from) + source.offset);
}

// Halves are converted one by one where a tap has fewer than a vector, which takes longer than their
// products: of an image with a few channels all taps are converted together. False: it has more.
__attribute__((noinline)) bool ON(gather)(const Panels<Half>& p, std::size_t rows, Gathered* to) {
  if (p.taps == 1 || p.depth >= kLanes || p.taps * p.depth > kConverted) {
    return false;
  }
  for (std::size_t row = 0; row < rows; ++row) {
    Half all[kConverted];
    Half* next = all;
    const Half* const* taps = p.rows + row;
    for (std::size_t tap = 0; tap < p.taps; ++tap, taps += p.step) {
      const Half* from = ON(row_of)(p, *taps);
      for (std::size_t k = 0; k < p.depth; ++k) {
        *next++ = from[k];
      }
    }
    ON(convert)(all, p.taps * p.depth, to[row]);
  }
  return true;
}

// Rows of float32 are read where they are.
INLINE bool ON(gather)(const Panels<float>&, std::size_t, Gathered*) {
  return false;
}

// An element of a row is needed for every panel and is one of many: it is converted before, and once.
template <std::size_t kRows, std::size_t kVectors>
INLINE const Half* ON(tap)(Vector::Type (&sums)[kRows][kVectors], const Half* (&rows)[kRows],
                           std::size_t depth, const Half* weights, const Gathered* gathered) {
  alignas(64) float converted[kRows][kConverted];
  const float* from[kRows];
  for (std::size_t r = 0; r < kRows; ++r) {
    from[r] = gathered != nullptr ? gathered[r] : converted[r];
  }
  for (std::size_t begin = 0; begin < depth; begin += kConverted) {
    const std::size_t some = depth - begin < kConverted ? depth - begin : kConverted;
    for (std::size_t r = 0; r < kRows && gathered == nullptr; ++r) {
      ON(convert)(rows[r] + begin, some, converted[r]);
    }
    weights = ON(add)<kRows, kVectors>(sums, from, some, weights);
  }
  return weights;
}

// A row's elements from `begin` on, at most kConverted of them, as float32.
INLINE const float* ON(single)(const float* row, std::size_t begin, std::size_t, float*) {
  return row + begin;
}

INLINE const float* ON(single)(const Half* row, std::size_t begin, std::size_t count, float* converted) {
  ON(convert)(row + begin, count, converted);
  return converted;
}

// One row has few sums, and each waits for its last one: kPanels whole panels are computed side by side.
template <std::size_t kPanels, std::size_t kVectors, typename Element>
INLINE void ON(side_by_side)(const Panels<Element>& p, const Element* weights, char* c) {
  const std::size_t next = kVectors * kLanes * (p.depth + 1);
  Vector::Type sums[kPanels][kVectors];
#pragma GCC unroll 8
  for (std::size_t q = 0; q < kPanels; ++q) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[q][v] = Vector::load(weights + q * next + v * kLanes);
    }
  }
  weights += kVectors * kLanes;
  alignas(64) float converted[kConverted];
  for (std::size_t begin = 0; begin < p.depth; begin += kConverted) {
    const std::size_t some = p.depth - begin < kConverted ? p.depth - begin : kConverted;
    const float* row = ON(single)(ON(row_of)(p, p.rows[0]), begin, some, converted);
    for (std::size_t k = 0; k < some; ++k, weights += kVectors * kLanes) {
      const Vector::Type element = Vector::broadcast(row + k);
#pragma GCC unroll 8
      for (std::size_t q = 0; q < kPanels; ++q) {
#pragma GCC unroll 4
        for (std::size_t v = 0; v < kVectors; ++v) {
          sums[q][v] =
              Vector::multiply_add(element, Vector::load(weights + q * next + v * kLanes), sums[q][v]);
        }
      }
    }
  }
  const Vector::Type least = Vector::broadcast(&p.least);
  const Vector::Type greatest = Vector::broadcast(&p.greatest);
#pragma GCC unroll 8
  for (std::size_t q = 0; q < kPanels; ++q) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      Vector::store(reinterpret_cast<Element*>(c + q * p.panel_stride) + v * kLanes,
                    Vector::clamp(sums[q][v], least, greatest));
    }
  }
}

// The panels of one row that can be computed side by side; true when none is left.
template <std::size_t kPanels, std::size_t kVectors, typename Element>
INLINE bool ON(several)(const Panels<Element>& p, const Element** weights, char** c, std::size_t* left) {
  constexpr std::size_t kColumns = kVectors * kLanes;
  for (; *left >= kPanels * kColumns; *left -= kPanels * kColumns) {
    ON(side_by_side)<kPanels, kVectors>(p, *weights, *c);
    *weights += kPanels * kColumns * (p.depth + 1);
    *c += kPanels * p.panel_stride;
  }
  if constexpr (kPanels > 2) {
    return ON(several)<kPanels / 2, kVectors>(p, weights, c, left);
  }
  return *left == 0;
}

template <std::size_t kRows, std::size_t kVectors, typename Element>
void ON(panels)(const Panels<Element>& p) {
  constexpr std::size_t kColumns = kVectors * kLanes;
  const Element* weights = p.weights;
  char* c = p.c;
  alignas(64) Gathered all[kRows];
  const Gathered* gathered = nullptr;
  std::size_t taps = p.taps;
  std::size_t depth = p.depth;
  if (ON(gather)(p, kRows, all)) {
    gathered = all;
    taps = 1;
    depth = p.taps * p.depth;
  }
  std::size_t left = p.columns;
  if constexpr (kRows == 1) {
    constexpr std::size_t kPanels = kVectors == 1 ? 8 : kVectors == 2 ? 4 : 2;
    if (p.taps == 1 && ON(several) < kPanels, kVectors > (p, &weights, &c, &left)) {
      return;
    }
  }
  for (;;) {
    Vector::Type sums[kRows][kVectors];
#pragma GCC unroll 12
    for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = Vector::load(weights + v * kLanes);
      }
    }
    weights += kColumns;
    const Element* const* from = p.rows;
    for (std::size_t tap = 0; tap < taps; ++tap, from += p.step) {
      const Element* rows[kRows];
#pragma GCC unroll 12
      for (std::size_t r = 0; r < kRows; ++r) {
        rows[r] = ON(row_of)(p, from[r]);
      }
      weights = ON(tap)<kRows, kVectors>(sums, rows, depth, weights, gathered);
    }
    const Vector::Type least = Vector::broadcast(&p.least);
    const Vector::Type greatest = Vector::broadcast(&p.greatest);
#pragma GCC unroll 12
    for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = Vector::clamp(sums[r][v], least, greatest);
        auto* to = reinterpret_cast<Element*>(c + r * p.c_stride) + v * kLanes;
        if (left >= (v + 1) * kLanes) {
          Vector::store(to, sums[r][v]);
        } else if (left > v * kLanes) {
          ON(store_some)(to, sums[r][v], left - v * kLanes);
        }
      }
    }
    if (left <= kColumns) {
      return;
    }
    left -= kColumns;
    c += p.panel_stride;
  }
}

template <std::size_t kRows, std::size_t kVectors>
constexpr bool kFits = kRows * kVectors + kVectors + 1 <= Vector::kRegisters;

template <typename Element>
using Run = void (*)(const Panels<Element>&);

template <std::size_t kRows, std::size_t kVectors, typename Element>
constexpr Run<Element> run() {
  if constexpr (kFits<kRows, kVectors>) {
    return &ON(panels)<kRows, kVectors, Element>;
  } else {
    return nullptr;
  }
}

// A tile's remainder has fewer rows, and computes no more.
template <std::size_t kVectors, typename Element>
constexpr Run<Element> kRuns[kMostTileRows] = {
    run<1, kVectors, Element>(),  run<2, kVectors, Element>(),  run<3, kVectors, Element>(),
    run<4, kVectors, Element>(),  run<5, kVectors, Element>(),  run<6, kVectors, Element>(),
    run<7, kVectors, Element>(),  run<8, kVectors, Element>(),  run<9, kVectors, Element>(),
    run<10, kVectors, Element>(), run<11, kVectors, Element>(), run<12, kVectors, Element>(),
};

// As XNNPACK gives them to its kernels; `from`: `rows` rows for each of the taps, which are `step` apart.
template <std::size_t kVectors, typename Element>
INLINE void ON(product)(std::size_t rows, std::size_t columns, std::size_t depth_bytes, std::size_t taps,
                        const Element** from, std::size_t step, const Element* weights, Element* c,
                        std::size_t c_stride, std::size_t panel_stride, std::size_t offset,
                        const Element* zero, const Element* limits) {
  kRuns<kVectors, Element>[rows - 1]({columns, depth_bytes / sizeof(Element), taps, from, step, offset, zero,
                                      weights, reinterpret_cast<char*>(c), c_stride, panel_stride,
                                      ON(to_float)(limits[0]), ON(to_float)(limits[1])});
}

// Where the rows begin. Not a part of every tile's kernel: compilers make long vector code of this loop.
template <typename Element>
[[gnu::noinline]] void ON(find_rows)(std::size_t rows, const Element* a, std::size_t stride,
                                     const Element** from) {
  for (std::size_t r = 0; r < rows; ++r) {
    from[r] = reinterpret_cast<const Element*>(reinterpret_cast<const char*>(a) + r * stride);
  }
}

template <std::size_t kRows, std::size_t kVectors, typename Element>
void ON(gemm)(std::size_t rows, std::size_t columns, std::size_t depth_bytes, const Element* a,
              std::size_t a_stride, const Element* weights, Element* c, std::size_t c_stride,
              std::size_t panel_stride, const Element* limits) {
  const Element* from[kRows];
  ON(find_rows)(rows, a, a_stride, from);
  ON(product)<kVectors, Element>(rows, columns, depth_bytes, 1, from, 0, weights, c, c_stride, panel_stride,
                                 0, nullptr, limits);
}

template <std::size_t kRows, std::size_t kVectors, typename Element>
void ON(igemm)(std::size_t rows, std::size_t columns, std::size_t depth_bytes, std::size_t taps_bytes,
               const Element** a, const Element* weights, Element* c, std::size_t c_stride,
               std::size_t panel_stride, std::size_t a_offset, const Element* zero, const Element* limits) {
  ON(product)<kVectors, Element>(rows, columns, depth_bytes, taps_bytes / (kRows * sizeof(void*)), a, kRows,
                                 weights, c, c_stride, panel_stride, a_offset, zero, limits);
}

// Packs panels of rows of `From`, which are rounded where that is the wider type.
template <typename From, typename Element>
void ON(pack_rows)(std::size_t columns, std::size_t depth, std::size_t panel, const From* weights,
                   const From* bias, Element* packed, std::size_t first, std::size_t last) {
  constexpr std::size_t kDeep = Vector::kDeep<From>;
  for (std::size_t at = first; at < last; ++at) {
    Element* to = packed + at * panel * (depth + 1);
    const std::size_t begin = at * panel;
    const std::size_t some = columns - begin < panel ? columns - begin : panel;
    const From* from = weights + begin * depth;
    // Two loops: of one with a condition the compiler makes loads under a mask, and QEMU reads what is
    // masked.
    const std::size_t biased = bias == nullptr ? 0 : some;
    for (std::size_t n = 0; n < biased; ++n) {
      to[n] = ON(rounded)<Element>(bias[begin + n]);
    }
    for (std::size_t n = biased; n < panel; ++n) {
      to[n] = Element{};
    }
    to += panel;
    for (std::size_t n = 0; n < panel; n += kLanes) {
      std::size_t k = 0;
      for (; n + kLanes <= some && k + kDeep <= depth; k += kDeep) {
        ON(transpose)(from + n * depth + k, depth, to + k * panel + n, panel);
      }
      for (; k < depth; ++k) {
        for (std::size_t i = 0; i < kLanes; ++i) {
          to[k * panel + n + i] = ON(rounded)<Element>(n + i < some ? from[(n + i) * depth + k] : From{});
        }
      }
    }
  }
}

// Three rows become columns that lie one behind the other.
void ON(interleave_words)(const void* input, void* output, std::size_t stride, std::size_t, std::size_t width,
                          std::size_t) {
  const auto row = [&](std::size_t i) {
    return reinterpret_cast<const float*>(static_cast<const char*>(input) + i * stride);
  };
  auto* to = static_cast<float*>(output);
  std::size_t x = 0;
  for (; x + kLanes <= width; x += kLanes, to += 3 * kLanes) {
    const Vector::Type rows[3] = {Vector::load_any(row(0) + x), Vector::load_any(row(1) + x),
                                  Vector::load_any(row(2) + x)};
    Vector::store(to, Vector::third<0>(rows));
    Vector::store(to + kLanes, Vector::third<1>(rows));
    Vector::store(to + 2 * kLanes, Vector::third<2>(rows));
  }
  for (; x < width; ++x, to += 3) {
    for (std::size_t i = 0; i < 3; ++i) {
      to[i] = row(i)[x];
    }
  }
}

// Which byte of a row's 16 goes to each byte of a part of the result; none where the highest bit is set.
template <std::size_t kSize>
struct Picks {
  constexpr Picks() : bytes() {
    for (std::size_t i = 0; i < 48; ++i) {
      for (std::size_t row = 0; row < 3; ++row) {
        const std::size_t element = i / kSize;
        const bool picked = element % 3 == row;
        bytes[i / 16][row][i % 16] =
            static_cast<std::uint8_t>(picked ? element / 3 * kSize + i % kSize : 0x80);
      }
    }
  }
  alignas(16) std::uint8_t bytes[3][3][16];
};
template <std::size_t kSize>
constexpr Picks<kSize> kPicks;

template <std::size_t kSize>
void ON(interleave_small)(const void* input, void* output, std::size_t stride, std::size_t, std::size_t width,
                          std::size_t) {
  const auto* from = static_cast<const std::uint8_t*>(input);
  auto* to = static_cast<std::uint8_t*>(output);
  const std::size_t bytes = width * kSize;
  std::size_t at = 0;
  for (; at + 16 <= bytes; at += 16) {
    __m128i rows[3];
    for (std::size_t row = 0; row < 3; ++row) {
      rows[row] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * stride + at));
    }
    for (std::size_t part = 0; part < 3; ++part) {
      const auto pick = [&](std::size_t row) {
        const auto* bits = reinterpret_cast<const __m128i*>(kPicks<kSize>.bytes[part][row]);
        return _mm_shuffle_epi8(rows[row], _mm_load_si128(bits));
      };
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 3 * at + 16 * part),
                       _mm_or_si128(_mm_or_si128(pick(0), pick(1)), pick(2)));
    }
  }
  for (; at < bytes; at += kSize) {
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::size_t i = 0; i < kSize; ++i) {
        to[3 * at + row * kSize + i] = from[row * stride + at + i];
      }
    }
  }
}

// A square at the right or at the lower edge of what is transposed.
[[gnu::noinline]] void ON(transpose_some)(const char* from, std::size_t input_stride, char* to,
                                          std::size_t output_stride, std::size_t columns, std::size_t rows) {
  Vector::Type all[kLanes];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    // Rows that are not there stand for themselves: nobody stores them.
    const auto* row = reinterpret_cast<const float*>(from + (i < rows ? i : 0) * input_stride);
    all[i] = columns == kLanes ? Vector::load_any(row) : Vector::load_some(row, columns);
  }
  Vector::transpose(all);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (i < columns) {
      Vector::store_some(reinterpret_cast<float*>(to + i * output_stride), all[i], rows);
    }
  }
}

void ON(transpose_all)(const void* input, void* output, std::size_t input_stride, std::size_t output_stride,
                       std::size_t width, std::size_t height) {
  const auto* from = static_cast<const char*>(input);
  auto* to = static_cast<char*>(output);
  for (std::size_t x = 0; x < width; x += kLanes) {
    for (std::size_t y = 0; y < height; y += kLanes) {
      const char* source = from + y * input_stride + x * sizeof(float);
      char* target = to + x * output_stride + y * sizeof(float);
      const std::size_t columns = width - x < kLanes ? width - x : kLanes;
      const std::size_t rows = height - y < kLanes ? height - y : kLanes;
      if (columns < kLanes || rows < kLanes) {
        ON(transpose_some)(source, input_stride, target, output_stride, columns, rows);
      } else {
        ON(transpose)(reinterpret_cast<const float*>(source), input_stride / sizeof(float),
                      reinterpret_cast<float*>(target), output_stride / sizeof(float));
      }
    }
  }
}

void ON(scale_channels)(std::size_t rows, std::size_t channel_bytes, const float* input,
                        std::size_t input_stride, const float* weights, float* output,
                        std::size_t output_stride, const float* limits) {
  const std::size_t channels = channel_bytes / sizeof(float);
  const Vector::Type least = Vector::broadcast(limits);
  const Vector::Type greatest = Vector::broadcast(limits + 1);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto* from =
        reinterpret_cast<const float*>(reinterpret_cast<const char*>(input) + r * input_stride);
    auto* to = reinterpret_cast<float*>(reinterpret_cast<char*>(output) + r * output_stride);
    const auto scaled = [&](std::size_t at, Vector::Type value) {
      const float* of = weights + 2 * at;
      return Vector::clamp(Vector::multiply_add(value, Vector::load_any(of), Vector::load_any(of + kLanes)),
                           least, greatest);
    };
    std::size_t at = 0;
    for (; at + kLanes <= channels; at += kLanes) {
      Vector::store(to + at, scaled(at, Vector::load_any(from + at)));
    }
    if (at < channels) {
      Vector::store_some(to + at, scaled(at, Vector::load_some(from + at, channels - at)), channels - at);
    }
  }
}

// The bits of a vector as whole numbers.
using Words = std::uint32_t __attribute__((vector_size(sizeof(Vector::Type))));

// As PackQuads: a vector's lanes of columns are transposed with four bytes of each as one element.
inline void ON(pack_quads)(const std::int8_t* from, std::size_t stride, std::size_t count, std::uint8_t* to,
                           std::size_t step, std::int32_t* sums) {
  constexpr std::size_t kDeep = 4 * kLanes;
  constexpr std::uint32_t kEverySecondByte = 0x00ff00ffU;
  Words above = {};  // sums of bytes that are 128 more than they were: of two in each half of a word
  std::size_t k = 0;
  for (std::size_t packed = 0; packed < count; packed = k + kDeep) {
    k = packed + kDeep <= count ? packed : count - kDeep;  // the last ones overlap
    Vector::Type rows[kLanes];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) {
      rows[i] = Vector::load_any(reinterpret_cast<const float*>(from + i * stride + k));
      Vector::prefetch(reinterpret_cast<const float*>(from + i * stride + k + 256));
    }
    Vector::transpose(rows);
    const std::size_t seen = (packed - k) / 4;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) {
      Vector::store(reinterpret_cast<float*>(to + (k / 4 + i) * step), rows[i]);
      const Words bytes = reinterpret_cast<Words>(rows[i]) ^ 0x80808080U;
      const Words pairs = (bytes & kEverySecondByte) + (bytes >> 8 & kEverySecondByte);
      above += i < seen ? Words{} : pairs;
    }
  }
  const Words total = (above & 0xffffU) + (above >> 16);
  for (std::size_t i = 0; i < kLanes; ++i) {
    sums[i] += static_cast<std::int32_t>(total[i]) - 128 * static_cast<std::int32_t>(count);
  }
}

// A depthwise convolution's window for kPixels neighbours of an output row: what is loaded of the weights
// serves them all. `left`: channels from `offset` on.
template <std::size_t kPixels, std::size_t kVectors, typename Element>
INLINE void ON(window)(const Element* const* const (&rows)[kPixels], std::size_t taps, std::size_t offset,
                       const Element* weights, std::size_t left, const Window<Element>& window,
                       Element* (&to)[kPixels]) {
  const std::size_t next = (taps + 1) * kLanes;  // weights of the next vector
  Vector::Type sums[kPixels][kVectors];
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[p][v] = Vector::load(weights + v * next);
    }
  }
  for (std::size_t tap = 0; tap < taps; ++tap) {
    weights += kLanes;
    Vector::Type columns[kVectors];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      columns[v] = Vector::load(weights + v * next);
    }
#pragma GCC unroll 4
    for (std::size_t p = 0; p < kPixels; ++p) {
      const Element* from = ON(row_of)(window, rows[p][tap]) + offset;
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectors; ++v) {
        // Behind a row's last channel XNNPACK keeps memory for a vector more, and for no more.
        const Vector::Type element = (v + 1) * kLanes <= left
                                         ? Vector::load_any(from + v * kLanes)
                                         : Vector::load_some(from + v * kLanes, left - v * kLanes);
        sums[p][v] = Vector::multiply_add(element, columns[v], sums[p][v]);
      }
    }
  }
  const Vector::Type least = Vector::broadcast(&window.least);
  const Vector::Type greatest = Vector::broadcast(&window.greatest);
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      sums[p][v] = Vector::clamp(sums[p][v], least, greatest);
      if ((v + 1) * kLanes <= left) {
        Vector::store(to[p] + offset + v * kLanes, sums[p][v]);
      } else {
        ON(store_some)(to[p] + offset + v * kLanes, sums[p][v], left - v * kLanes);
      }
    }
  }
}

template <std::size_t kPixels, typename Element>
INLINE void ON(pixels)(const Window<Element>& window, std::size_t taps, std::size_t channels,
                       const Element** input, std::ptrdiff_t input_stride, const Element* weights,
                       char* output, std::size_t pixel_bytes) {
  const Element* const* rows[kPixels];
  Element* to[kPixels];
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kPixels; ++p) {
    rows[p] = reinterpret_cast<const Element* const*>(reinterpret_cast<const char*>(input) +
                                                      static_cast<std::ptrdiff_t>(p) * input_stride);
    to[p] = reinterpret_cast<Element*>(output + p * pixel_bytes);
  }
  std::size_t at = 0;
  for (; at + 2 * kLanes <= channels; at += 2 * kLanes, weights += 2 * (taps + 1) * kLanes) {
    ON(window)<kPixels, 2>(rows, taps, at, weights, 2 * kLanes, window, to);
  }
  for (; at < channels; at += kLanes, weights += (taps + 1) * kLanes) {
    if (channels - at >= kLanes) {
      ON(window)<kPixels, 1>(rows, taps, at, weights, kLanes, window, to);
    } else {
      ON(window)<kPixels, 1>(rows, taps, at, weights, channels - at, window, to);
    }
  }
}

template <typename Element>
INLINE void ON(row_of_windows)(std::size_t taps, std::size_t channels, std::size_t width,
                               const Element** input, const Element* weights, Element* output,
                               std::ptrdiff_t input_stride, std::size_t output_increment,
                               std::size_t input_offset, const Element* zero, const Element* limits) {
  const Window<Element> window = {input_offset, zero, ON(to_float)(limits[0]), ON(to_float)(limits[1])};
  const std::size_t pixel_bytes = channels * sizeof(Element) + output_increment;
  char* to = reinterpret_cast<char*>(output);
  const auto step = [&](std::size_t pixels) {
    input = reinterpret_cast<const Element**>(reinterpret_cast<char*>(input) +
                                              static_cast<std::ptrdiff_t>(pixels) * input_stride);
    to += pixels * pixel_bytes;
    width -= pixels;
  };
  while (width >= 4) {
    ON(pixels)<4>(window, taps, channels, input, input_stride, weights, to, pixel_bytes);
    step(4);
  }
  while (width >= 2) {
    ON(pixels)<2>(window, taps, channels, input, input_stride, weights, to, pixel_bytes);
    step(2);
  }
  if (width != 0) {
    ON(pixels)<1>(window, taps, channels, input, input_stride, weights, to, pixel_bytes);
  }
}

// One for all large windows: their loops are not unrolled.
template <typename Element>
[[gnu::noinline]] void ON(large_windows)(std::size_t taps, std::size_t channels, std::size_t width,
                                         const Element** input, const Element* weights, Element* output,
                                         std::ptrdiff_t input_stride, std::size_t output_increment,
                                         std::size_t input_offset, const Element* zero,
                                         const Element* limits) {
  ON(row_of_windows)(taps, channels, width, input, weights, output, input_stride, output_increment,
                     input_offset, zero, limits);
}

template <std::size_t kTaps, typename Element>
void ON(depthwise)(std::size_t channels, std::size_t width, const Element** input, const Element* weights,
                   Element* output, std::ptrdiff_t input_stride, std::size_t output_increment,
                   std::size_t input_offset, const Element* zero, const Element* limits) {
  if constexpr (kTaps <= 9) {
    ON(row_of_windows)(kTaps, channels, width, input, weights, output, input_stride, output_increment,
                       input_offset, zero, limits);
  } else {
    ON(large_windows)(kTaps, channels, width, input, weights, output, input_stride, output_increment,
                      input_offset, zero, limits);
  }
}

template <std::size_t kRows, std::size_t kVectors, typename Element>
constexpr Tile<Element> tile() {
  if constexpr (kFits<kRows, kVectors>) {
    return {&ON(gemm) < kRows, kVectors, Element >, &ON(igemm) < kRows, kVectors, Element > };
  } else {
    return {};
  }
}

#define SLIPWAY_TILES(vectors, element)                                                     \
  {tile<1, vectors, element>(),  tile<2, vectors, element>(),  tile<3, vectors, element>(), \
   tile<4, vectors, element>(),  tile<5, vectors, element>(),  tile<6, vectors, element>(), \
   tile<7, vectors, element>(),  tile<8, vectors, element>(),  tile<9, vectors, element>(), \
   tile<10, vectors, element>(), tile<11, vectors, element>(), tile<12, vectors, element>()}

template <std::size_t kTaps, typename Element>
constexpr Depthwise<Element> kDepthwise = {kTaps, &ON(depthwise) < kTaps, Element > };

constexpr TileSet all_tiles(const char* isa, double second_cache) {
  return {isa,
          kLanes,
          second_cache,
          static_cast<PackRows<float, float>>(&ON(pack_rows)),
          static_cast<PackRows<Half, Half>>(&ON(pack_rows)),
          static_cast<PackRows<float, Half>>(&ON(pack_rows)),
          &ON(pack_quads),
          &ON(transpose_all),
          {&ON(interleave_small) < 1 >, &ON(interleave_small) < 2 >, &ON(interleave_words)},
          &ON(scale_channels),
          {SLIPWAY_TILES(1, float), SLIPWAY_TILES(2, float), SLIPWAY_TILES(3, float)},
          {SLIPWAY_TILES(1, Half), SLIPWAY_TILES(2, Half)},
          {kDepthwise<9, float>, kDepthwise<25, float>, kDepthwise<49, float>, kDepthwise<81, float>,
           kDepthwise<121, float>},
          {kDepthwise<9, Half>, kDepthwise<25, Half>, kDepthwise<49, Half>}};
}
#undef SLIPWAY_TILES

}  // namespace
