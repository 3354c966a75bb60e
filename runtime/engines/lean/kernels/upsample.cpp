// Images of another size, by the nearest pixel or between pixels, and sampled at the points of a grid.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/platform.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

std::vector<double> factors_of(const EValue& value) {
  const auto* list = std::get_if<DoubleList>(&value);
  return list == nullptr ? std::vector<double>() : list->items;
}

// Gives `out` the shape of a resized image: as asked for, or by factors.
Status resize_image(const TensorView& in, const std::vector<std::int64_t>& sizes,
                    const std::vector<double>& factors, TensorView* out) {
  if (in.rank != 4 || (sizes.size() != 2 && factors.size() != 2)) {
    return mismatch("cannot resize " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  for (std::size_t i = 0; i < 2; ++i) {
    const double new_size =
        sizes.size() == 2 ? static_cast<double>(sizes[i]) : static_cast<double>(in.sizes[2 + i]) * factors[i];
    if (!(new_size >= 0 && new_size <= INT32_MAX) || (new_size >= 1 && in.sizes[2 + i] == 0)) {
      return mismatch("cannot resize " + to_text(in.shape()));
    }
    shape[2 + i] = static_cast<std::int64_t>(new_size);
  }
  return resize(out, shape);
}

// Pixels of the input a pixel of the output is apart from the next.
template <typename T>
T scale_of(std::int64_t in, std::int64_t out, const std::vector<double>& factors, std::size_t i,
           bool corners) {
  if (corners) {
    return out > 1 ? static_cast<T>(in - 1) / static_cast<T>(out - 1) : T(0);
  }
  return factors.size() == 2 && factors[i] > 0 ? static_cast<T>(1.0 / factors[i])
                                               : static_cast<T>(in) / static_cast<T>(out);
}

// The pixel of `size` that a coordinate falls on: an image's edge for what is outside, or no number.
template <typename T>
std::int64_t pixel_at(T coordinate, std::int64_t size) {
  return std::clamp<std::int64_t>(to_int64(static_cast<double>(coordinate)), 0,
                                  std::max<std::int64_t>(size - 1, 0));
}

Status nearest(const TensorView& in, const std::vector<std::int64_t>& sizes, const EValue& scale_factors,
               TensorView& out) {
  const std::vector<double> factors = factors_of(scale_factors);
  SLIPWAY_RETURN_IF_EMPTY(resize_image(in, sizes, factors, &out), out);
  if (in.dtype != out.dtype) {
    return mismatch("an image is resized into another type");
  }
  std::vector<std::vector<std::int64_t>> places(in.rank);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto scale = scale_of<float>(in.sizes[2 + i], out.sizes[2 + i], factors, i, false);
    for (std::int64_t at = 0; at < out.sizes[2 + i]; ++at) {
      places[2 + i].push_back(pixel_at(std::floor(static_cast<float>(at) * scale), in.sizes[2 + i]));
    }
  }
  pick_places(in, std::move(places), out);
  return {};
}

// Which pixels of the input a pixel of the output is made of, and how much of each.
template <typename T>
struct Blend {
  std::int64_t first = 0;
  std::vector<T> shares;
};

// A triangle over the pixels that an output's pixel covers; at least over its two neighbours.
template <typename T>
std::vector<Blend<T>> triangles(std::int64_t in, std::int64_t out, T scale) {
  const T reach = scale > T(1) ? scale : T(1);
  std::vector<Blend<T>> blends(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < out; ++i) {
    Blend<T>& blend = blends[static_cast<std::size_t>(i)];
    const T center = scale * (static_cast<T>(i) + T(0.5));
    const auto inside = [in](T x) {
      return std::clamp<std::int64_t>(to_int64(static_cast<double>(x)), 0, in);
    };
    blend.first = inside(center - reach + T(0.5));
    const std::int64_t last = inside(center + reach + T(0.5));
    T total{};
    for (std::int64_t x = blend.first; x < last; ++x) {
      const T distance = std::abs((static_cast<T>(x) - center + T(0.5)) / reach);
      blend.shares.push_back(distance < T(1) ? T(1) - distance : T(0));
      total += blend.shares.back();
    }
    for (T& share : blend.shares) {
      share = total == T(0) ? T(0) : share / total;
    }
  }
  return blends;
}

// The two pixels around each coordinate; one at the image's end.
template <typename T>
std::vector<Blend<T>> neighbours(std::int64_t in, std::int64_t out, T scale, bool corners) {
  std::vector<Blend<T>> blends(static_cast<std::size_t>(out));
  for (std::int64_t i = 0; i < out; ++i) {
    Blend<T>& blend = blends[static_cast<std::size_t>(i)];
    const T coordinate =
        corners ? static_cast<T>(i) * scale : std::max((static_cast<T>(i) + T(0.5)) * scale - T(0.5), T(0));
    blend.first = pixel_at(coordinate, in);
    const T share = std::min(std::max(coordinate - static_cast<T>(blend.first), T(0)), T(1));
    blend.shares = blend.first + 1 < in ? std::vector<T>{T(1) - share, share} : std::vector<T>{T(1)};
  }
  return blends;
}

// Columns first, then rows. `find` finds the blends of a dimension: find(pixels, pixels of the result,
// scale).
template <typename Find>
Status resample(const TensorView& in, const std::vector<double>& factors, bool corners, TensorView& out,
                Find find) {
  std::size_t between = 0;
  SLIPWAY_RETURN_IF_ERROR(count_elements({in.sizes[2], out.sizes[3]}, sizeof(double), &between)
                              ? check_room(between * sizeof(double), "an image between two sizes")
                              : mismatch("cannot resize " + to_text(in.shape())));
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Volume<T> source(in);
    Volume<T> result = Volume<T>::results(out, {&source.values});
    const std::vector<Blend<T>> rows =
        find(in.sizes[2], out.sizes[2], scale_of<T>(in.sizes[2], out.sizes[2], factors, 0, corners));
    const std::vector<Blend<T>> columns =
        find(in.sizes[3], out.sizes[3], scale_of<T>(in.sizes[3], out.sizes[3], factors, 1, corners));
    const std::size_t width = columns.size();
    std::vector<T> narrow(static_cast<std::size_t>(in.sizes[2]) * width);
    const auto narrow_row = [&](const T* row, T* to) {
      for (const Blend<T>& blend : columns) {
        T total{};
        for (std::size_t k = 0; k < blend.shares.size(); ++k) {
          total += blend.shares[k] * row[blend.first + static_cast<std::int64_t>(k)];
        }
        *to++ = total;
      }
    };
    for (std::int64_t i = 0; i < result.planes(); ++i) {
      const T* plane = source.plane(0, i);
      T* to = result.plane(0, i);
      std::int64_t known = 0;  // rows up to here that are needed are narrow
      for (const Blend<T>& blend : rows) {
        const auto last = blend.first + static_cast<std::int64_t>(blend.shares.size());
        for (known = std::max(known, blend.first); known < last; ++known) {
          narrow_row(plane + known * in.sizes[3], narrow.data() + static_cast<std::size_t>(known) * width);
        }
        const T* line = narrow.data() + static_cast<std::size_t>(blend.first) * width;
        std::fill_n(to, width, T{});
        for (const T share : blend.shares) {
          for (std::size_t x = 0; x < width; ++x) {
            to[x] += share * line[x];
          }
          line += width;
        }
        to += width;
      }
    }
    result.put(out);
    return Status();
  });
}

Status bilinear(const TensorView& in, const std::vector<std::int64_t>& sizes, bool corners,
                const EValue& scale_factors, TensorView& out) {
  const std::vector<double> factors = factors_of(scale_factors);
  SLIPWAY_RETURN_IF_EMPTY(resize_image(in, sizes, factors, &out), out);
  return resample(in, factors, corners, out, [corners](std::int64_t from, std::int64_t to, auto scale) {
    return neighbours(from, to, scale, corners);
  });
}

Status smooth_bilinear(const TensorView& in, const std::vector<std::int64_t>& sizes, bool corners,
                       std::optional<double> scales_h, std::optional<double> scales_w, TensorView& out) {
  const std::vector<double> factors{scales_h.value_or(0), scales_w.value_or(0)};
  const Status done = resize_image(in, sizes, {}, &out);
  if (!done.ok() || out.count() == 0 || in.count() == 0) {
    return done;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    // Factors belong to the sizes: a pixel blended of too many takes more memory than both images.
    const double whole = static_cast<double>(in.sizes[2 + i]) * factors[i];
    if (factors[i] > 0 && !(std::abs(whole - static_cast<double>(out.sizes[2 + i])) <= 1)) {
      return mismatch("cannot resize " + to_text(in.shape()) + " by " + std::to_string(factors[i]));
    }
  }
  return resample(in, factors, corners, out,
                  [](std::int64_t from, std::int64_t to, auto scale) { return triangles(from, to, scale); });
}

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
    const auto inner = [](T x) { return ((kA + T(2)) * x - (kA + T(3))) * x * x + T(1); };
    const auto outer = [](T x) { return ((kA * x - T(5) * kA) * x + T(8) * kA) * x - T(4) * kA; };
    shares[0] = outer(t + T(1));
    shares[1] = inner(t);
    shares[2] = inner(T(1) - t);
    shares[3] = outer(T(2) - t);
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

// Modes bilinear, nearest, bicubic; padding zeros, border, reflection.
Status grid_sampler(const TensorView& in, const TensorView& grid, std::int64_t mode, std::int64_t padding,
                    bool corners, TensorView& out) {
  if (in.rank != 4 || grid.rank != 4 || grid.sizes[3] != 2 || grid.sizes[0] != in.sizes[0] ||
      in.sizes[2] == 0 || in.sizes[3] == 0 || mode < 0 || mode > 2 || padding < 0 || padding > 2) {
    return mismatch("cannot sample " + to_text(in.shape()) + " at " + to_text(grid.shape()));
  }
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, Shape{in.sizes[0], in.sizes[1], grid.sizes[1], grid.sizes[2]}), out);
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

}  // namespace

constexpr KernelTable kUpsampleKernels = {
    {"aten::_upsample_bilinear2d_aa.out", typed<smooth_bilinear>},
    {"aten::grid_sampler_2d.out", typed<grid_sampler>},
    {"aten::upsample_bilinear2d.vec_out", typed<bilinear>},
    {"aten::upsample_nearest2d.vec_out", typed<nearest>},
};

}  // namespace slipway::lean
