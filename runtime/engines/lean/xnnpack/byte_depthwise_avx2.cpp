// XNNPACK's kernels widen each byte to 32 bits, weights too, for every product. Here the weights of 16
// channels are widened once for a row of results. Pixels are widened to 16 bits, and two of a column are
// multiplied and added at once. Windows that lie side by side share columns, so a column is widened once for
// all of them. Integers are exact, and the rest has XNNPACK's order, so the bits are the same.
#include <immintrin.h>

#include "lean/xnnpack/byte_tile.h"

#define INLINE inline __attribute__((always_inline))

namespace slipway::lean::avx2 {
namespace {

// Pointers to pixels that are found at once, at most: more than a window's, and than most rows'.
constexpr std::size_t kMostPlaces = 512;

// Two numbers of each channel: of 16, in the order of what interleaves them, which packing undoes; or of
// eight, in one vector.
template <std::size_t kChannels>
struct Pairs;
template <>
struct Pairs<16> {
  __m256i low;   // channels 0 to 3 and 8 to 11
  __m256i high;  // channels 4 to 7 and 12 to 15
};
template <>
struct Pairs<8> {
  __m256i all;
};

// A window's weights, bias and scales. What has no neighbour in its column has a zero.
template <std::size_t kChannels, std::size_t kColumns, std::size_t kLength>
struct Block {
  static constexpr std::size_t kPairs = (kLength + 1) / 2;  // of a column
  Pairs<kChannels> weights[kColumns][kPairs];
  Pairs<kChannels> bias;
  Pairs<kChannels> scales;
};

// What all results of a call share.
struct Results {
  __m256 most;  // less the zero point
  __m256i zero_point;
  __m128i least;
};

inline __m256i vector_on_avx2(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Numbers of 32 bits.
template <std::size_t kChannels>
Pairs<kChannels> in_order_of_pairs_on_avx2(const std::uint8_t* from) {
  const __m256i first = vector_on_avx2(from);
  if constexpr (kChannels == 8) {
    return {first};
  } else {
    const __m256i last = vector_on_avx2(from + sizeof(first));
    return {_mm256_permute2x128_si256(first, last, 0x20), _mm256_permute2x128_si256(first, last, 0x31)};
  }
}

// The bytes of two pixels, or of one and zeros. Behind a pixel's last channel XNNPACK keeps memory for a few
// bytes more, and for no more.
template <std::size_t kChannels>
INLINE Pairs<kChannels> interleave_on_avx2(const void* one, const void* other) {
  if constexpr (kChannels == 8) {
    const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(one));
    const __m128i others =
        other == nullptr ? _mm_setzero_si128() : _mm_loadl_epi64(static_cast<const __m128i*>(other));
    return {_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, others))};
  } else {
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(one)));
    const __m256i others = other == nullptr
                               ? _mm256_setzero_si256()
                               : _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(other)));
    return {_mm256_unpacklo_epi16(words, others), _mm256_unpackhi_epi16(words, others)};
  }
}

// From XNNPACK's order, which has 16 channels: the bias, the weights column by column, the scales.
template <std::size_t kChannels, std::size_t kColumns, std::size_t kLength>
void prepare_on_avx2(const std::uint8_t* from, Block<kChannels, kColumns, kLength>* to) {
  to->bias = in_order_of_pairs_on_avx2<kChannels>(from);
  from += kByteChannels * sizeof(std::int32_t);
  for (auto& column : to->weights) {
    for (std::size_t tap = 0; tap < kLength; ++tap, from += kByteChannels) {
      if (tap % 2 == 1) {
        column[tap / 2] = interleave_on_avx2<kChannels>(from - kByteChannels, from);
      } else if (tap + 1 == kLength) {
        column[tap / 2] = interleave_on_avx2<kChannels>(from, nullptr);
      }
    }
  }
  to->scales = in_order_of_pairs_on_avx2<kChannels>(from);
}

template <std::size_t kChannels, std::size_t kLength>
INLINE Pairs<kChannels> pair_on_avx2(const std::int8_t* const* column, std::size_t pair,
                                     std::size_t channel) {
  const bool last = kLength % 2 == 1 && 2 * pair + 1 == kLength;
  return interleave_on_avx2<kChannels>(column[2 * pair] + channel,
                                       last ? nullptr : column[2 * pair + 1] + channel);
}

INLINE void add_products_on_avx2(const Pairs<16>& pixels, const Pairs<16>& weights, Pairs<16>* sums) {
  sums->low = _mm256_add_epi32(sums->low, _mm256_madd_epi16(pixels.low, weights.low));
  sums->high = _mm256_add_epi32(sums->high, _mm256_madd_epi16(pixels.high, weights.high));
}

INLINE void add_products_on_avx2(const Pairs<8>& pixels, const Pairs<8>& weights, Pairs<8>* sums) {
  sums->all = _mm256_add_epi32(sums->all, _mm256_madd_epi16(pixels.all, weights.all));
}

INLINE __m256i round_on_avx2(__m256i sums, __m256i scales, const Results& results) {
  const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_castsi256_ps(scales));
  return _mm256_cvtps_epi32(_mm256_min_ps(scaled, results.most));
}

// Stores all channels, without a branch: Clang would move other windows' sums behind it, through memory.
INLINE void end_on_avx2(const Pairs<16>& sums, const Pairs<16>& scales, const Results& results,
                        std::int8_t* to) {
  const __m256i words = _mm256_adds_epi16(_mm256_packs_epi32(round_on_avx2(sums.low, scales.low, results),
                                                             round_on_avx2(sums.high, scales.high, results)),
                                          results.zero_point);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_max_epi8(bytes, results.least));
}

INLINE void end_on_avx2(const Pairs<8>& sums, const Pairs<8>& scales, const Results& results,
                        std::int8_t* to) {
  const __m256i rounded = round_on_avx2(sums.all, scales.all, results);
  const __m128i words =
      _mm_adds_epi16(_mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)),
                     _mm256_castsi256_si128(results.zero_point));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                   _mm_max_epi8(_mm_packs_epi16(words, words), results.least));
}

// Windows of a row, for 16 channels or for eight.
struct Work {
  Results results;
  std::size_t width;
  const std::int8_t* const* input;
  std::size_t input_step;
  std::size_t channel;
  std::size_t step;  // bytes from a result to the next
};

// A column of pixels for all windows that have it: sums[i] are of the window whose column kSide - 1 - i it
// is. Some of these windows lie outside of the row near its ends, and are left out.
template <std::size_t kChannels, std::size_t kSide>
INLINE void add_column_on_avx2(const Block<kChannels, kSide, kSide>& block, const Work& work,
                               std::size_t column, Pairs<kChannels> (&sums)[kSide]) {
  const std::int8_t* const* pixels = work.input + column * kSide;
  if (column >= kSide - 1 && column < work.width) {
#pragma GCC unroll 3
    for (std::size_t pair = 0; pair < block.kPairs; ++pair) {
      const Pairs<kChannels> both = pair_on_avx2<kChannels, kSide>(pixels, pair, work.channel);
#pragma GCC unroll 5
      for (std::size_t i = 0; i < kSide; ++i) {
        add_products_on_avx2(both, block.weights[kSide - 1 - i][pair], &sums[i]);
      }
    }
    return;
  }
  Pairs<kChannels> both[Block<kChannels, kSide, kSide>::kPairs];
#pragma GCC unroll 3
  for (std::size_t pair = 0; pair < block.kPairs; ++pair) {
    both[pair] = pair_on_avx2<kChannels, kSide>(pixels, pair, work.channel);
  }
#pragma GCC unroll 5
  for (std::size_t i = 0; i < kSide; ++i) {
    if (column + i >= kSide - 1 && column + i < work.width + kSide - 1) {
#pragma GCC unroll 3
      for (std::size_t pair = 0; pair < block.kPairs; ++pair) {
        add_products_on_avx2(both[pair], block.weights[kSide - 1 - i][pair], &sums[i]);
      }
    }
  }
}

// Windows that lie side by side.
template <std::size_t kChannels, std::size_t kSide>
void neighbours_on_avx2(const Block<kChannels, kSide, kSide>& block, const Work& work, std::int8_t* to) {
  Pairs<kChannels> sums[kSide];
#pragma GCC unroll 5
  for (Pairs<kChannels>& sum : sums) {
    sum = block.bias;
  }
  for (std::size_t column = 0; column < work.width + kSide - 1; ++column) {
    add_column_on_avx2<kChannels, kSide>(block, work, column, sums);
    if (column >= kSide - 1) {
      end_on_avx2(sums[0], block.scales, work.results, to);
      to += work.step;
    }
    // One by one: Clang would make a loop of it that keeps the sums in memory.
    sums[0] = sums[1];
    sums[1] = sums[2];
    if constexpr (kSide == 5) {
      sums[2] = sums[3];
      sums[3] = sums[4];
    }
    sums[kSide - 1] = block.bias;
  }
}

template <std::size_t kChannels, std::size_t kTaps>
void windows_on_avx2(const Block<kChannels, 1, kTaps>& block, const Work& work, std::int8_t* to) {
  const std::int8_t* const* input = work.input;
  for (std::size_t x = 0; x < work.width; ++x, input += work.input_step, to += work.step) {
    Pairs<kChannels> sums = block.bias;
    // All pairs of a small window, and a part of a large one's.
#pragma GCC unroll 4
    for (std::size_t pair = 0; pair < kTaps / 2; ++pair) {
      add_products_on_avx2(pair_on_avx2<kChannels, kTaps - 1>(input, pair, work.channel),
                           block.weights[0][pair], &sums);
    }
    add_products_on_avx2(pair_on_avx2<kChannels, kTaps>(input, kTaps / 2, work.channel),
                         block.weights[0][kTaps / 2], &sums);
    end_on_avx2(sums, block.scales, work.results, to);
  }
}

template <std::size_t kChannels, std::size_t kSide>
void some_channels_on_avx2(const std::uint8_t* weights, const Work& work, std::int8_t* to) {
  constexpr std::size_t kTaps = kSide * kSide;
  if (work.input_step == kSide && work.width >= kSide) {
    Block<kChannels, kSide, kSide> block;
    prepare_on_avx2(weights, &block);
    neighbours_on_avx2<kChannels, kSide>(block, work, to);
  } else {
    Block<kChannels, 1, kTaps> block;
    prepare_on_avx2(weights, &block);
    windows_on_avx2<kChannels, kTaps>(block, work, to);
  }
}

template <std::size_t kSide>
void byte_depthwise_on_avx2(std::size_t channels, std::size_t width, const std::int8_t** input,
                            const void* weights, std::int8_t* output, std::ptrdiff_t input_stride,
                            std::size_t output_increment, std::size_t input_offset, const std::int8_t* zero,
                            const ByteLimits* limits) {
  constexpr std::size_t kTaps = kSide * kSide;
  constexpr std::size_t kBlockBytes = kByteChannels * (2 * sizeof(float) + kTaps);
  const std::size_t pixel_bytes = channels + output_increment;
  // Where pixels lie, found once for all channels; and results that are fewer than 16 channels.
  const std::int8_t* places[kMostPlaces];
  std::int8_t some[kMostPlaces * kByteChannels];
  Work work;
  work.results = {_mm256_set1_ps(static_cast<float>(limits->greatest - limits->zero_point)),
                  _mm256_set1_epi16(limits->zero_point), _mm_set1_epi8(static_cast<char>(limits->least))};
  work.input = places;
  work.input_step = static_cast<std::size_t>(input_stride) / sizeof(*input);
  const std::size_t most = (kMostPlaces - kTaps) / work.input_step + 1;
  for (; width > 0; width -= work.width, input += work.width * work.input_step) {
    work.width = width < most ? width : most;
    for (std::size_t i = 0; i < (work.width - 1) * work.input_step + kTaps; ++i) {
      places[i] = input[i] == zero ? zero : input[i] + input_offset;
    }
    const auto* from = static_cast<const std::uint8_t*>(weights);
    for (work.channel = 0; work.channel < channels; work.channel += kByteChannels, from += kBlockBytes) {
      const std::size_t left = channels - work.channel;
      const bool whole = left >= kByteChannels || left == 8;
      work.step = whole ? pixel_bytes : kByteChannels;
      std::int8_t* to = whole ? output + work.channel : some;
      left > 8 ? some_channels_on_avx2<16, kSide>(from, work, to)
               : some_channels_on_avx2<8, kSide>(from, work, to);
      for (std::size_t x = 0; !whole && x < work.width; ++x) {
        for (std::size_t i = 0; i < left; ++i) {
          output[x * pixel_bytes + work.channel + i] = some[x * kByteChannels + i];
        }
      }
    }
    output += work.width * pixel_bytes;
  }
}

}  // namespace

const ByteDepthwise kByteDepthwise[kByteDepthwiseKernels] = {{9, &byte_depthwise_on_avx2<3>},
                                                             {25, &byte_depthwise_on_avx2<5>}};

}  // namespace slipway::lean::avx2
