// Winograd's method against a plain convolution in double.

#include "check.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/winograd.h"

using namespace slipway::lean;

namespace {

constexpr float kUnlimited = std::numeric_limits<float>::infinity();

struct Case {
  WinogradSizes sizes;
  float offset = 0;  // of all pixels
  float least = -kUnlimited;
  float greatest = kUnlimited;
};

WinogradSizes sizes_of(std::size_t batch, std::size_t channels, std::size_t results, std::size_t height,
                       std::size_t width, std::size_t top, std::size_t left, std::size_t bottom,
                       std::size_t right) {
  WinogradSizes sizes;
  sizes.batch = batch;
  sizes.channels = channels;
  sizes.results = results;
  sizes.height = height;
  sizes.width = width;
  sizes.pixel = channels + 3;
  sizes.result_height = height + top + bottom - 2;
  sizes.result_width = width + left + right - 2;
  sizes.result_pixel = results + 2;
  sizes.top = top;
  sizes.left = left;
  return sizes;
}

// Numbers in [-1, 1).
std::vector<float> any_numbers(std::size_t count, std::uint32_t seed) {
  std::vector<float> found(count);
  for (float& one : found) {
    seed = seed * 1664525U + 1013904223U;
    one = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
  }
  return found;
}

struct Layer {
  explicit Layer(const Case& of)
      : all(of),
        input(any_numbers(of.sizes.batch * of.sizes.height * of.sizes.width * of.sizes.pixel, 1)),
        weights(any_numbers(of.sizes.results * 9 * of.sizes.channels, 2)),
        bias(any_numbers(of.sizes.results, 3)) {
    for (float& pixel : input) {
      pixel += of.offset;
    }
  }

  // Of result channel `n` at that pixel: the sum, and that of its terms' absolute values.
  double expected(std::size_t image, std::size_t y, std::size_t x, std::size_t n, double* terms) const {
    const WinogradSizes& s = all.sizes;
    double sum = static_cast<double>(bias[n]);
    for (std::size_t tap = 0; tap < 9; ++tap) {
      const std::size_t from_y = y + tap / 3 - s.top;
      const std::size_t from_x = x + tap % 3 - s.left;
      for (std::size_t k = 0; k < s.channels && from_y < s.height && from_x < s.width; ++k) {
        const double term =
            static_cast<double>(input[((image * s.height + from_y) * s.width + from_x) * s.pixel + k]) *
            static_cast<double>(weights[(n * 9 + tap) * s.channels + k]);
        sum += term;
        *terms += std::abs(term);
      }
    }
    return std::clamp(sum, static_cast<double>(all.least), static_cast<double>(all.greatest));
  }

  std::vector<float> run(const TileSet& set, std::size_t threads) const {
    const WinogradSizes& s = all.sizes;
    const WinogradKernels& kernels = *winograd_kernels(&set);
    const std::size_t panel = winograd_tile(set, s.tiles(), s.channels, s.results).vectors * set.lanes;
    WinogradPlan plan = plan_winograd(set, kernels, s, panel, threads);
    std::vector<float> memory(winograd_packed_elements(s.channels, s.results, panel) +
                              threads * plan.thread_elements + 64);
    float* packed = memory.data();
    while (reinterpret_cast<std::uintptr_t>(packed) % 64 != 0) {
      ++packed;
    }
    pack_winograd(set, kernels, s.channels, s.results, panel, weights.data(), bias.data(), packed, 0,
                  plan.panels());
    const std::vector<float> zero(s.channels);
    std::vector<float> output(s.batch * s.result_height * s.result_width * s.result_pixel, 7);
    plan.data = {input.data(), zero.data(), packed, output.data(), nullptr, {all.least, all.greatest}};
    plan.data.work = packed + winograd_packed_elements(s.channels, s.results, panel);
    for (std::size_t strip = 0; strip < plan.strips(); ++strip) {
      for (std::size_t group = 0; group < plan.groups(); ++group) {
        winograd_block(&plan, (strip + group) % threads, strip, group);
      }
    }
    return output;
  }

  Case all;
  std::vector<float> input;
  std::vector<float> weights;  // [results, 3, 3, channels]
  std::vector<float> bias;
};

std::vector<const TileSet*> winograd_sets() {
  std::vector<const TileSet*> found;
  if (winograd_kernels(float_tiles()) != nullptr) {
    found.push_back(float_tiles());
  }
#if defined(__x86_64__)
  if (float_tiles() == &avx512f::kTiles) {
    found.push_back(&avx2::kTiles);
  }
#endif
  return found;
}

// The error's greatest share of the sum of all terms' absolute values.
double check_layer(const TileSet& set, const Case& one) {
  const Layer layer(one);
  const WinogradSizes& s = one.sizes;
  const std::vector<float> output = layer.run(set, 1);
  CHECK(output == layer.run(set, 2));
  CHECK(output == layer.run(set, 7));
  double worst = 0;
  for (std::size_t image = 0; image < s.batch; ++image) {
    for (std::size_t y = 0; y < s.result_height; ++y) {
      for (std::size_t x = 0; x < s.result_width; ++x) {
        const float* pixel =
            output.data() + ((image * s.result_height + y) * s.result_width + x) * s.result_pixel;
        for (std::size_t n = 0; n < s.results; ++n) {
          double terms = 1;
          const double expected = layer.expected(image, y, x, n, &terms);
          worst = std::max(worst, std::abs(static_cast<double>(pixel[n]) - expected) / terms);
        }
        CHECK(pixel[s.results] == 7);  // between the pixels nothing is written
        CHECK(pixel[s.results + 1] == 7);
      }
    }
  }
  return worst;
}

}  // namespace

TEST("Winograd's method computes convolutions of any size and padding, alike with any number of threads") {
  for (const TileSet* set : winograd_sets()) {
    for (const std::size_t height : std::initializer_list<std::size_t>{1, 2, 5, 14}) {
      for (const std::size_t width : std::initializer_list<std::size_t>{1, 3, 8}) {
        for (std::size_t padding = 0; padding < 16; ++padding) {
          const std::size_t top = padding % 3;
          const std::size_t left = (padding + 1) / 2 % 3;
          const std::size_t bottom = padding / 4 % 3;
          const std::size_t right = padding / 5 % 3;
          if (height + top + bottom < 3 || width + left + right < 3) {
            continue;
          }
          const std::size_t channels = padding % 2 == 0 ? 17 : 3;
          const std::size_t results = padding % 4 < 2 ? 33 : 16;
          const Case one = {sizes_of(2, channels, results, height, width, top, left, bottom, right)};
          CHECK(check_layer(*set, one) < 1e-6);
        }
      }
    }
  }
}

TEST("Winograd's method stays exact for many channels, panels and strips, and within limits") {
  for (const TileSet* set : winograd_sets()) {
    CHECK(check_layer(*set, {sizes_of(1, 200, 130, 9, 9, 1, 1, 1, 1)}) < 1e-6);
    CHECK(check_layer(*set, {sizes_of(1, 32, 32, 40, 41, 1, 1, 1, 1), 0, -0.5F, 0.75F}) < 1e-6);
    // Differences of great numbers.
    CHECK(check_layer(*set, {sizes_of(1, 64, 48, 12, 12, 1, 1, 1, 1), 10000}) < 1e-6);
  }
}

TEST("a pixel that is no number, or infinite, is in no result whose window it is not in") {
  for (const TileSet* set : winograd_sets()) {
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(), kUnlimited}) {
      Layer layer({sizes_of(1, 20, 24, 8, 8, 1, 1, 1, 1)});
      layer.input[(3 * 8 + 4) * layer.all.sizes.pixel] = odd;
      const std::vector<float> output = layer.run(*set, 1);
      for (std::size_t y = 0; y < 8; ++y) {
        for (std::size_t x = 0; x < 8; ++x) {
          const bool within = y >= 2 && y <= 4 && x >= 3 && x <= 5;
          CHECK(std::isfinite(output[(y * 8 + x) * layer.all.sizes.result_pixel]) != within);
        }
      }
    }
  }
}

TEST("Winograd's method is for layers that are wide enough, and its kernel has a name") {
  const TileSet* set = float_tiles();
  if (winograd_kernels(set) != nullptr) {
    CHECK(winograd_pays(*set, sizes_of(1, 64, 64, 56, 56, 1, 1, 1, 1)));
    CHECK(!winograd_pays(*set, sizes_of(1, 3, 64, 224, 224, 1, 1, 1, 1)));
    CHECK(!winograd_pays(*set, sizes_of(1, 64, 3, 224, 224, 1, 1, 1, 1)));
    const auto kernel = reinterpret_cast<void (*)()>(winograd_kernels(set)->input);
    CHECK(winograd_name(kernel) == std::string("slipway_f32_winograd_2x2_3x3__") + set->isa);
  }
  CHECK(winograd_name(reinterpret_cast<void (*)()>(&any_numbers)).empty());
}
