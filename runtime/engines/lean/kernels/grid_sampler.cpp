// Images sampled at the points of a grid.
#include <algorithm>
#include <cmath>

#include "lean/kernels/tables.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

enum class Outside : std::uint8_t { kZero, kBorder, kMirror };

// Back and forth between `low` and `high`.
template <typename T>
T mirrored(T x, T low, T high) {
  const T span = high - low;
  if (!(span > T(0))) {
    return T(0);
  }
  const T away = std::abs(x - low);
  const T rest = std::fmod(away, span);
  return std::fmod(std::floor(away / span), T(2)) == T(0) ? low + rest : high - rest;
}

template <typename T>
struct Plane {
  const T* pixels;
  std::int64_t height, width;
  Outside outside;
  bool corners;

  // From -1..1 to pixels.
  T to_pixels(T x, std::int64_t size) const {
    const auto length = static_cast<T>(size);
    return corners ? (x + T(1)) / T(2) * (length - T(1)) : ((x + T(1)) * length - T(1)) / T(2);
  }

  // Back into the image, where coordinates outside stand for some inside.
  T inside(T x, std::int64_t size) const {
    const T last = static_cast<T>(size - 1);
    if (outside == Outside::kMirror) {
      x = corners ? mirrored(x, T(0), last) : mirrored(x, T(-0.5), last + T(0.5));
    }
    // NaN is not a coordinate; 0 is inside, so that nothing is read elsewhere.
    return outside == Outside::kZero ? x : x >= T(0) ? std::min(x, last) : T(0);
  }

  // A whole number of pixels, however far outside.
  static std::int64_t whole(T x) {
    constexpr T kFar = T(1) * (std::int64_t{1} << 40);
    return x > -kFar && x < kFar ? static_cast<std::int64_t>(std::floor(x)) : -(std::int64_t{1} << 40);
  }

  T pixel(std::int64_t y, std::int64_t x) const {
    return y >= 0 && y < height && x >= 0 && x < width ? pixels[y * width + x] : T(0);
  }

  T nearest(T x, T y) const {
    return pixel(whole(std::nearbyint(inside(to_pixels(y, height), height))),
                 whole(std::nearbyint(inside(to_pixels(x, width), width))));
  }

  T bilinear(T x, T y) const {
    const T column = inside(to_pixels(x, width), width);
    const T row = inside(to_pixels(y, height), height);
    const std::int64_t left = whole(column);
    const std::int64_t top = whole(row);
    const T right_share = column - std::floor(column);
    const T bottom_share = row - std::floor(row);
    return (pixel(top, left) * (T(1) - right_share) + pixel(top, left + 1) * right_share) *
               (T(1) - bottom_share) +
           (pixel(top + 1, left) * (T(1) - right_share) + pixel(top + 1, left + 1) * right_share) *
               bottom_share;
  }

  // Shares of four neighbours around a coordinate that is `t` behind the second (Keys 1981, a = -0.75).
  static void cubic(T t, T* shares) {
    constexpr T kA = T(-0.75);
    const auto near = [](T x) { return ((kA + T(2)) * x - (kA + T(3))) * x * x + T(1); };
    const auto far = [](T x) { return ((kA * x - T(5) * kA) * x + T(8) * kA) * x - T(4) * kA; };
    shares[0] = far(t + T(1));
    shares[1] = near(t);
    shares[2] = near(T(1) - t);
    shares[3] = far(T(2) - t);
  }

  T bicubic(T x, T y) const {
    const T column = to_pixels(x, width);
    const T row = to_pixels(y, height);
    T across[4];
    T down[4];
    cubic(column - std::floor(column), across);
    cubic(row - std::floor(row), down);
    T total{};
    for (int j = 0; j < 4; ++j) {
      T line{};
      for (int i = 0; i < 4; ++i) {
        const T at_x = inside(std::floor(column) + static_cast<T>(i - 1), width);
        const T at_y = inside(std::floor(row) + static_cast<T>(j - 1), height);
        line += pixel(whole(at_y), whole(at_x)) * across[i];
      }
      total += line * down[j];
    }
    return total;
  }
};

// aten::grid_sampler_2d.out(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool
// align_corners,
// *, Tensor(a!) out): modes bilinear, nearest, bicubic; padding zeros, border, reflection.
Status grid_sampler(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& grid = arguments.tensor(1);
  const std::int64_t mode = arguments.integer(2);
  const std::int64_t padding = arguments.integer(3);
  const bool corners = arguments.boolean(4);
  TensorView& out = arguments.tensor(5);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  if (in.rank != 4 || grid.rank != 4 || grid.sizes[3] != 2 || grid.sizes[0] != in.sizes[0] ||
      in.sizes[2] == 0 || in.sizes[3] == 0 || mode < 0 || mode > 2 || padding < 0 || padding > 2) {
    return mismatch("cannot sample " + to_text(in.shape()) + " at " + to_text(grid.shape()));
  }
  const Status resized = resize(&out, Shape{in.sizes[0], in.sizes[1], grid.sizes[1], grid.sizes[2]});
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Volume<T> source(in);
    const Volume<T> points(grid);
    Volume<T> result = Volume<T>::results(out, {&source.values, &points.values});
    for (std::int64_t n = 0; n < in.sizes[0]; ++n) {
      for (std::int64_t c = 0; c < in.sizes[1]; ++c) {
        const Plane<T> plane{source.plane(n, c), in.sizes[2], in.sizes[3], static_cast<Outside>(padding),
                             corners};
        const T* point = points.plane(n, 0);
        T* to = result.plane(n, c);
        for (std::int64_t i = 0; i < result.area(); ++i) {
          const T x = point[2 * i];
          const T y = point[2 * i + 1];
          to[i] = mode == 0 ? plane.bilinear(x, y) : mode == 1 ? plane.nearest(x, y) : plane.bicubic(x, y);
        }
      }
    }
    result.put(out);
    return Status();
  });
}

constexpr KernelEntry kGridSamplerTable[] = {
    {"aten::grid_sampler_2d.out", grid_sampler, 6},
};

}  // namespace

KernelTable grid_sampler_kernels() {
  return kGridSamplerTable;
}

}  // namespace slipway::lean
