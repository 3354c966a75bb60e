#include "lean/xnnpack/winograd.h"

#include <xnnpack/common.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lean/xnnpack/own_kernels.h"
#include "selection.h"

namespace slipway::lean {
namespace {

// Of the second cache, whose rest holds a panel's weights and sums.
constexpr std::size_t kStripElements = std::size_t{128} * 1024;
// Weights that stay there while few tiles are multiplied by them.
constexpr std::size_t kNearWeights = std::size_t{128} * 1024;
constexpr std::size_t kBlocksPerThread = 4;
constexpr std::size_t kFewTiles = 8;
// What a tile takes besides its products, for each vector of its channels and at all.
constexpr double kVectorCycles = 30;
constexpr double kTileCycles = 60;
// What it takes to read each weight that this method has more, 16 for 9, from no cache. It decides where
// images are small and weights many.
constexpr double kWeightCycles = 1;
constexpr std::size_t kPixelTaps = 9;
// The model does not know what the caches do.
constexpr double kGain = 0.85;
constexpr std::size_t kFewChannels = 16;
// Rows that lie a multiple of a page apart would share a few lines of the first cache.
constexpr std::size_t kLine = 16;

std::size_t whole_units(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

// An odd number of lines.
std::size_t spread(std::size_t count) {
  return (whole_units(count, kLine) / kLine | 1) * kLine;
}

const WinogradPlan& plan_of(const void* context) {
  return *static_cast<const WinogradPlan*>(context);
}

// Transforms a tile's pixels.
void transform_input(const WinogradPlan& plan, std::size_t tile, float* to) {
  const WinogradSizes& s = plan.sizes;
  const std::size_t across = (s.result_width + 1) / 2;
  const std::size_t down = (s.result_height + 1) / 2;
  const std::size_t x = tile % across * 2;
  const std::size_t y = tile / across % down * 2;
  const float* image = plan.data.input + tile / (across * down) * s.height * s.width * s.pixel;
  const float* pixels[kWinogradProducts];
  for (std::size_t r = 0; r < 4; ++r) {
    // Above the first row the difference wraps around, and is greater than any height.
    const std::size_t from_y = y + r - s.top;
    for (std::size_t c = 0; c < 4; ++c) {
      const std::size_t from_x = x + c - s.left;
      pixels[4 * r + c] = from_y < s.height && from_x < s.width
                              ? image + (from_y * s.width + from_x) * s.pixel
                              : plan.data.zero;
    }
  }
  plan.kernels->input(pixels, s.channels, to, plan.stride);
}

// Multiplies a strip's tiles by a panel of weights, and writes the results. `work` holds the sums, and a
// panel for results that do not exist.
void multiply_panel(const WinogradPlan& plan, std::size_t begin, std::size_t count, const float* input,
                    std::size_t panel, float* work) {
  const WinogradSizes& s = plan.sizes;
  constexpr float kAll[] = {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  const std::size_t product_elements = plan.panel * (s.channels + 1);
  const float* weights = plan.data.weights + panel * kWinogradProducts * product_elements;
  for (std::size_t i = 0; i < kWinogradProducts; ++i) {
    for (std::size_t m = 0; m < count; m += plan.tile_rows) {
      plan.multiply(std::min(plan.tile_rows, count - m), plan.panel, s.channels * sizeof(float),
                    input + i * plan.stride + m * plan.row, plan.row * sizeof(float),
                    weights + i * product_elements, work + i * plan.sum_stride + m * plan.panel,
                    plan.panel * sizeof(float), plan.panel * sizeof(float), kAll);
    }
  }
  const std::size_t across = (s.result_width + 1) / 2;
  const std::size_t down = (s.result_height + 1) / 2;
  const std::size_t columns = std::min(plan.panel, s.results - panel * plan.panel);
  float* nowhere = work + kWinogradProducts * plan.sum_stride;
  for (std::size_t m = 0; m < count; ++m) {
    const std::size_t tile = begin + m;
    const std::size_t x = tile % across * 2;
    const std::size_t y = tile / across % down * 2;
    const std::size_t image = tile / (across * down);
    float* first = plan.data.output + ((image * s.result_height + y) * s.result_width + x) * s.result_pixel +
                   panel * plan.panel;
    const std::size_t next = s.result_width * s.result_pixel;
    const bool right = x + 1 < s.result_width;
    const bool below = y + 1 < s.result_height;
    float* const to[] = {first, right ? first + s.result_pixel : nowhere, below ? first + next : nowhere,
                         right && below ? first + next + s.result_pixel : nowhere};
    plan.kernels->output(work + m * plan.panel, plan.sum_stride, columns, to, plan.data.limits);
  }
}

}  // namespace

const WinogradKernels* winograd_kernels(const TileSet* set) {
#if XNN_ARCH_X86_64
  if constexpr (!has_float_layers()) {
    return nullptr;
  }
  return set == &avx512f::kTiles ? &avx512f::kWinograd : set == &avx2::kTiles ? &avx2::kWinograd : nullptr;
#else
  (void)set;
  return nullptr;
#endif
}

TileShape winograd_tile(const TileSet& set, std::size_t tiles, std::size_t channels, std::size_t results) {
  return choose_tile(set, TileElement::kFloat, tiles, results, channels);
}

double winograd_cycles(const TileSet& set, const WinogradSizes& sizes) {
  const TileShape shape = winograd_tile(set, sizes.tiles(), sizes.channels, sizes.results);
  const double tiles = static_cast<double>(sizes.tiles());
  const double products =
      kWinogradProducts * cycles_of(set, shape, sizes.tiles(), sizes.results, sizes.channels);
  const double vectors = static_cast<double>(sizes.channels + sizes.results) / static_cast<double>(set.lanes);
  const double more = static_cast<double>((kWinogradProducts - kPixelTaps) * sizes.channels * sizes.results);
  return products + tiles * (kTileCycles + kVectorCycles * vectors) + kWeightCycles * more;
}

bool winograd_pays(const TileSet& set, const WinogradSizes& sizes) {
  const std::size_t rows = sizes.batch * sizes.result_height * sizes.result_width;
  const std::size_t depth = kPixelTaps * sizes.channels;
  const TileShape shape = choose_tile(set, TileElement::kFloat, rows, sizes.results, depth);
  const double direct = cycles_of(set, shape, rows, sizes.results, depth);
  return sizes.channels >= kFewChannels && sizes.results >= kFewChannels &&
         winograd_cycles(set, sizes) < kGain * direct;
}

WinogradPlan plan_winograd(const TileSet& set, const WinogradKernels& kernels, const WinogradSizes& sizes,
                           std::size_t panel, std::size_t threads) {
  WinogradPlan plan = {};
  plan.sizes = sizes;
  plan.kernels = &kernels;
  plan.panel = panel;
  plan.row = spread(sizes.channels);
  const std::size_t tiles = sizes.tiles();
  const std::size_t panels = plan.panels();
  const std::size_t many = winograd_tile(set, kStripElements, sizes.channels, sizes.results).rows;
  const std::size_t resident = kStripElements / (kWinogradProducts * plan.row) / many * many;
  plan.strip = std::min(std::clamp(resident, 2 * many, 4 * many), tiles);
  plan.group = panels;
  const bool near_weights = winograd_packed_elements(sizes.channels, sizes.results, panel) <= kNearWeights;
  const auto halve = [](std::size_t* count, std::size_t unit) {
    *count = whole_units((*count + 1) / 2, unit);
  };
  while (threads > 1 && plan.strips() * plan.groups() < threads * kBlocksPerThread) {
    // Each part of the weights is multiplied by tiles that are transformed for it once more.
    if (plan.strip >= 4 * many) {
      halve(&plan.strip, many);
    } else if (plan.strip >= 2 * kFewTiles && (near_weights || plan.group == 1)) {
      halve(&plan.strip, 1);
    } else if (plan.group > 1) {
      halve(&plan.group, 1);
    } else {
      break;
    }
  }
  // As many strips, all of about the same height.
  const std::size_t each = (tiles + plan.strips() - 1) / plan.strips();
  plan.strip = std::min(each < many ? each : whole_units(each, many), plan.strip);
  plan.tile_rows = winograd_tile(set, plan.strip, sizes.channels, sizes.results).rows;
  plan.multiply = set.tiles[panel / set.lanes - 1][plan.tile_rows - 1].gemm;
  plan.stride = spread(plan.strip * plan.row);
  plan.sum_stride = spread(plan.strip * panel);
  plan.input_elements = kWinogradProducts * plan.stride;
  plan.thread_elements =
      plan.input_elements + whole_units(kWinogradProducts * plan.sum_stride + panel, kLine);
  return plan;
}

std::size_t winograd_packed_elements(std::size_t channels, std::size_t results, std::size_t panel) {
  return kWinogradProducts * whole_units(results, panel) * (channels + 1);
}

void pack_winograd(const TileSet& set, const WinogradKernels& kernels, std::size_t channels,
                   std::size_t results, std::size_t panel, const float* weights, const float* bias,
                   float* packed, std::size_t first, std::size_t last) {
  std::vector<float> transformed(kWinogradProducts * panel * channels);
  const std::size_t stride = panel * channels;
  for (std::size_t at = first; at < last; ++at) {
    const std::size_t begin = at * panel;
    const std::size_t some = std::min(panel, results - begin);
    for (std::size_t n = 0; n < some; ++n) {
      kernels.weights(weights + (begin + n) * kPixelTaps * channels, channels,
                      transformed.data() + n * channels, stride);
    }
    for (std::size_t i = 0; i < kWinogradProducts; ++i) {
      // The product in the second row and column is added to each of the four results, and to each once.
      const bool adds = i == 5 && bias != nullptr;
      set.pack_rows(some, channels, panel, transformed.data() + i * stride, adds ? bias + begin : nullptr,
                    packed + (at * kWinogradProducts + i) * panel * (channels + 1), 0, 1);
    }
  }
}

void winograd_block(void* context, std::size_t thread, std::size_t strip, std::size_t group) {
  const WinogradPlan& plan = plan_of(context);
  const std::size_t begin = strip * plan.strip;
  const std::size_t count = std::min(plan.strip, plan.sizes.tiles() - begin);
  float* input = plan.data.work + thread * plan.thread_elements;
  for (std::size_t m = 0; m < count; ++m) {
    transform_input(plan, begin + m, input + m * plan.row);
  }
  const std::size_t last = std::min((group + 1) * plan.group, plan.panels());
  for (std::size_t panel = group * plan.group; panel < last; ++panel) {
    multiply_panel(plan, begin, count, input, panel, input + plan.input_elements);
  }
}

}  // namespace slipway::lean
