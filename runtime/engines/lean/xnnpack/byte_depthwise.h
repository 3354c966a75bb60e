// Depthwise convolutions in 8 bits. The file that includes this has the Lanes and Results of an instruction
// set, and ON(name), which ends a name with that set's.
//
// XNNPACK's kernels widen each byte to 32 bits, weights too, for every product. Here the weights of 16
// channels are made ready once for a row of results, and several pixels of a column are multiplied and added
// at once. Windows that lie side by side share columns, so a column is read once for all of them. Integers
// are exact, and the rest has XNNPACK's order, so the bits are the same.

// Lanes<Channels>: as many channels. XNNPACK's weights have 16, of which kFewChannels are read where no more
// are left. Behind a pixel's last channel it keeps memory for a few bytes more, and for no more.
//   Numbers  of 32 bits, one for each channel; numbers(from) reads them
//   Group    kTogether bytes of each channel; group<kCount>(at) reads kCount pixels or weights, the first at
//            at(0), with zeros for the rest
//   pixels(group), begin(weights, &sums), add(pixels, weights, &sums)
//   end(sums, scales, results, to)  stores all channels, without a branch: Clang would move other windows'
//            sums behind it, through memory

// Pointers to pixels that are found at once, at most: more than a window's, and than most rows'.
constexpr std::size_t kMostPlaces = 512;

// A window's weights, bias and scales.
template <std::size_t kChannels, std::size_t kColumns, std::size_t kLength>
struct Block {
  using L = Lanes<kChannels>;
  static constexpr std::size_t kGroups = (kLength + L::kTogether - 1) / L::kTogether;  // of a column
  typename L::Group weights[kColumns][kGroups];
  typename L::Numbers bias;
  typename L::Numbers scales;
};

// A group of a column of kLength pixels or weights.
template <typename L, std::size_t kLength, typename At>
INLINE typename L::Group ON(group)(std::size_t group, At at) {
  constexpr std::size_t kRest = kLength % L::kTogether;
  const auto own = [&](std::size_t i) { return at(group * L::kTogether + i); };
  return kRest != 0 && group == kLength / L::kTogether
             ? L::template group<kRest == 0 ? L::kTogether : kRest>(own)
             : L::template group<L::kTogether>(own);
}

// From XNNPACK's order, which has 16 channels: the bias, the weights column by column, the scales.
template <std::size_t kChannels, std::size_t kColumns, std::size_t kLength>
void ON(prepare)(const std::uint8_t* from, Block<kChannels, kColumns, kLength>* to) {
  using L = Lanes<kChannels>;
  to->bias = L::numbers(from);
  from += kByteChannels * sizeof(std::int32_t);
  for (auto& column : to->weights) {
    for (std::size_t i = 0; i < to->kGroups; ++i) {
      column[i] = ON(group)<L, kLength>(i, [from](std::size_t tap) { return from + tap * kByteChannels; });
      L::begin(column[i], &to->bias);
    }
    from += kLength * kByteChannels;
  }
  to->scales = L::numbers(from);
}

// Windows of a row, for 16 channels or for few.
struct Work {
  Results results;
  std::size_t width;
  const std::int8_t* const* input;
  std::size_t input_step;
  std::size_t channel;
  std::size_t step;  // bytes from a result to the next
};

template <std::size_t kChannels, std::size_t kLength>
INLINE typename Lanes<kChannels>::Group ON(pixels)(const std::int8_t* const* column, std::size_t group,
                                                   std::size_t channel) {
  using L = Lanes<kChannels>;
  return L::pixels(ON(group) < L, kLength > (group, [=](std::size_t i) { return column[i] + channel; }));
}

// A column of pixels for all windows that have it: sums[i] are of the window whose column kSide - 1 - i it
// is. Some of these windows lie outside of the row near its ends, and are left out.
template <std::size_t kChannels, std::size_t kSide>
INLINE void ON(add_column)(const Block<kChannels, kSide, kSide>& block, const Work& work, std::size_t column,
                           typename Lanes<kChannels>::Numbers (&sums)[kSide]) {
  using L = Lanes<kChannels>;
  const std::int8_t* const* pixels = work.input + column * kSide;
  if (column >= kSide - 1 && column < work.width) {
#pragma GCC unroll 3
    for (std::size_t group = 0; group < block.kGroups; ++group) {
      const auto some = ON(pixels)<kChannels, kSide>(pixels, group, work.channel);
#pragma GCC unroll 5
      for (std::size_t i = 0; i < kSide; ++i) {
        L::add(some, block.weights[kSide - 1 - i][group], &sums[i]);
      }
    }
    return;
  }
  typename L::Group all[Block<kChannels, kSide, kSide>::kGroups];
#pragma GCC unroll 3
  for (std::size_t group = 0; group < block.kGroups; ++group) {
    all[group] = ON(pixels)<kChannels, kSide>(pixels, group, work.channel);
  }
#pragma GCC unroll 5
  for (std::size_t i = 0; i < kSide; ++i) {
    if (column + i >= kSide - 1 && column + i < work.width + kSide - 1) {
#pragma GCC unroll 3
      for (std::size_t group = 0; group < block.kGroups; ++group) {
        L::add(all[group], block.weights[kSide - 1 - i][group], &sums[i]);
      }
    }
  }
}

// Windows that lie side by side.
template <std::size_t kChannels, std::size_t kSide>
void ON(neighbours)(const Block<kChannels, kSide, kSide>& block, const Work& work, std::int8_t* to) {
  using L = Lanes<kChannels>;
  typename L::Numbers sums[kSide];
#pragma GCC unroll 5
  for (auto& sum : sums) {
    sum = block.bias;
  }
  for (std::size_t column = 0; column < work.width + kSide - 1; ++column) {
    ON(add_column)<kChannels, kSide>(block, work, column, sums);
    if (column >= kSide - 1) {
      L::end(sums[0], block.scales, work.results, to);
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
void ON(windows)(const Block<kChannels, 1, kTaps>& block, const Work& work, std::int8_t* to) {
  using L = Lanes<kChannels>;
  const std::int8_t* const* input = work.input;
  for (std::size_t x = 0; x < work.width; ++x, input += work.input_step, to += work.step) {
    auto sums = block.bias;
    // All groups of a small window, and a part of a large one's.
#pragma GCC unroll 4
    for (std::size_t group = 0; group + 1 < block.kGroups; ++group) {
      L::add(ON(pixels) < kChannels, kTaps - 1 > (input, group, work.channel), block.weights[0][group],
             &sums);
    }
    L::add(ON(pixels) < kChannels, kTaps > (input, block.kGroups - 1, work.channel),
           block.weights[0][block.kGroups - 1], &sums);
    L::end(sums, block.scales, work.results, to);
  }
}

template <std::size_t kChannels, std::size_t kSide>
void ON(some_channels)(const std::uint8_t* weights, const Work& work, std::int8_t* to) {
  constexpr std::size_t kTaps = kSide * kSide;
  if (work.input_step == kSide && work.width >= kSide) {
    Block<kChannels, kSide, kSide> block;
    ON(prepare)(weights, &block);
    ON(neighbours)<kChannels, kSide>(block, work, to);
  } else {
    Block<kChannels, 1, kTaps> block;
    ON(prepare)(weights, &block);
    ON(windows)<kChannels, kTaps>(block, work, to);
  }
}

template <std::size_t kSide>
void ON(byte_depthwise)(std::size_t channels, std::size_t width, const std::int8_t** input,
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
  work.results = ON(results_of)(*limits);
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
      const bool whole = left >= kByteChannels || left == kFewChannels;
      work.step = whole ? pixel_bytes : kByteChannels;
      std::int8_t* to = whole ? output + work.channel : some;
      left > kFewChannels ? ON(some_channels)<16, kSide>(from, work, to)
                          : ON(some_channels)<kFewChannels, kSide>(from, work, to);
      for (std::size_t x = 0; !whole && x < work.width; ++x) {
        for (std::size_t i = 0; i < left; ++i) {
          output[x * pixel_bytes + work.channel + i] = some[x * kByteChannels + i];
        }
      }
    }
    output += work.width * pixel_bytes;
  }
}
