// Convolutions of one, two and three dimensions, forward and backward. For what a delegate left over: plain
// loops.
#include <algorithm>
#include <array>
#include <vector>

#include "lean/kernels/kernel.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

using Triple = std::array<std::int64_t, 3>;  // depth, row, column

struct Geometry {
  Triple stride, padding, dilation, output_padding;
  std::int64_t groups;
};

// A setting for `dims` dimensions: one number for all of them, or one each. The missing ones are `missing`.
Triple triple_of(const std::vector<std::int64_t>& items, std::size_t dims, std::int64_t missing) {
  Triple found{missing, missing, missing};
  for (std::size_t i = 0; i < dims && !items.empty(); ++i) {
    found[3 - dims + i] = items[std::min(i, items.size() - 1)];
  }
  return found;
}

// A convolution goes from the larger image to the smaller one, a transposed one from the smaller to the
// larger; a weight [A, B, ...] links channel a of the smaller with channel b of the larger, a gradient goes
// the other way. So all of them visit the same pairs: position s of the smaller is at s * stride - padding +
// k * dilation in the larger, for every position k of the kernel.
struct Taps {
  std::int64_t first;  // positions of the smaller for which that is inside
  std::int64_t last;
};

Taps taps_of(const Geometry& g, std::size_t d, std::int64_t k, std::int64_t small, std::int64_t big) {
  const std::int64_t shift = k * g.dilation[d] - g.padding[d];
  const std::int64_t first = shift >= 0 ? 0 : (-shift + g.stride[d] - 1) / g.stride[d];
  const std::int64_t last = big - shift <= 0 ? 0 : (big - shift - 1) / g.stride[d] + 1;
  return {first, std::min(last, small)};
}

// Calls f(small_at, big_at, big_step, count, weight_at) for every row of such pairs; all are numbers of
// elements.
template <typename T, typename F>
void each_row(const Volume<T>& small, const Volume<T>& big, const Volume<T>& weight, const Geometry& g, F f) {
  if (small.values.empty() || big.values.empty() || weight.values.empty()) {
    return;
  }
  const std::int64_t group = weight.sizes[0] / g.groups;
  const auto& s = small.sizes;
  const auto& b = big.sizes;
  const auto& k = weight.sizes;
  const auto offset = [&g](std::size_t d, std::int64_t at, std::int64_t tap) {
    return at * g.stride[d] - g.padding[d] + tap * g.dilation[d];
  };
  const auto in_plane = [&](std::int64_t small_at, std::int64_t big_at, std::int64_t weight_at) {
    for (std::int64_t kz = 0; kz < k[2]; ++kz) {
      const Taps depth = taps_of(g, 0, kz, s[2], b[2]);
      for (std::int64_t ky = 0; ky < k[3]; ++ky) {
        const Taps row = taps_of(g, 1, ky, s[3], b[3]);
        for (std::int64_t kx = 0; kx < k[4]; ++kx) {
          const Taps column = taps_of(g, 2, kx, s[4], b[4]);
          if (column.first >= column.last) {
            continue;
          }
          for (std::int64_t z = depth.first; z < depth.last; ++z) {
            for (std::int64_t y = row.first; y < row.last; ++y) {
              const std::int64_t from = (offset(0, z, kz) * b[3] + offset(1, y, ky)) * b[4];
              f(small_at + (z * s[3] + y) * s[4] + column.first, big_at + from + offset(2, column.first, kx),
                g.stride[2], column.last - column.first, weight_at + (kz * k[3] + ky) * k[4] + kx);
            }
          }
        }
      }
    }
  };
  for (std::int64_t n = 0; n < s[0]; ++n) {
    for (std::int64_t a = 0; a < k[0]; ++a) {
      for (std::int64_t c = 0; c < k[1]; ++c) {
        in_plane(small.at(n, a), big.at(n, a / group * k[1] + c), weight.at(a, c));
      }
    }
  }
}

// small += weight * big
template <typename T>
void gather_rows(Volume<T>* small, const Volume<T>& big, const Volume<T>& weight, const Geometry& g) {
  each_row(*small, big, weight, g,
           [&](std::int64_t to, std::int64_t from, std::int64_t step, std::int64_t count, std::int64_t at) {
             const T factor = weight.values[static_cast<std::size_t>(at)];
             T* target = small->values.data() + to;
             const T* source = big.values.data() + from;
             for (std::int64_t i = 0; i < count; ++i) {
               target[i] += factor * source[i * step];
             }
           });
}

// big += weight * small
template <typename T>
void scatter_rows(const Volume<T>& small, Volume<T>* big, const Volume<T>& weight, const Geometry& g) {
  each_row(small, *big, weight, g,
           [&](std::int64_t from, std::int64_t to, std::int64_t step, std::int64_t count, std::int64_t at) {
             const T factor = weight.values[static_cast<std::size_t>(at)];
             const T* source = small.values.data() + from;
             T* target = big->values.data() + to;
             for (std::int64_t i = 0; i < count; ++i) {
               target[i * step] += factor * source[i];
             }
           });
}

// weight += small * big
template <typename T>
void correlate_rows(const Volume<T>& small, const Volume<T>& big, Volume<T>* weight, const Geometry& g) {
  each_row(
      small, big, *weight, g,
      [&](std::int64_t first, std::int64_t second, std::int64_t step, std::int64_t count, std::int64_t at) {
        const T* a = small.values.data() + first;
        const T* b = big.values.data() + second;
        T total{};
        for (std::int64_t i = 0; i < count; ++i) {
          total += a[i] * b[i * step];
        }
        weight->values[static_cast<std::size_t>(at)] += total;
      });
}

// Up to a size whose products with a tensor's stay far from any overflow.
bool all_at_least(const Triple& triple, std::int64_t least) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  return std::all_of(triple.begin(), triple.end(),
                     [least](std::int64_t x) { return x >= least && x <= kMost; });
}

Status does_not_fit(const TensorView& in, const TensorView& weight) {
  return mismatch("cannot convolve " + to_text(in.shape()) + " with " + to_text(weight.shape()));
}

using Setting = std::vector<std::int64_t>;

Geometry geometry_of(const TensorView& in, const Setting& stride, const Setting& padding,
                     const Setting& dilation, const Setting& output_padding, std::int64_t groups) {
  const std::size_t dims = in.rank < 2 || in.rank > 5 ? 0 : in.rank - 2U;
  return {triple_of(stride, dims, 1), triple_of(padding, dims, 0), triple_of(dilation, dims, 1),
          triple_of(output_padding, dims, 0), groups};
}

bool weight_fits(const TensorView& in, const TensorView& weight, const Geometry& g, bool transposed) {
  if (in.rank < 3 || in.rank > 5 || weight.rank != in.rank || g.groups <= 0 || !all_at_least(g.stride, 1) ||
      !all_at_least(g.dilation, 1) || !all_at_least(g.padding, 0) || !all_at_least(g.output_padding, 0) ||
      weight.sizes[0] % g.groups != 0 || weight.sizes[0] == 0) {
    return false;
  }
  return in.sizes[1] % g.groups == 0 &&
         in.sizes[1] / (transposed ? 1 : g.groups) == weight.sizes[transposed ? 0 : 1];
}

// The output's shape; fails when a kernel is larger than the image.
Status output_shape(const TensorView& in, const TensorView& weight, const Geometry& g, bool transposed,
                    Shape* shape) {
  *shape = in.shape();
  (*shape)[1] = transposed ? weight.sizes[1] * g.groups : weight.sizes[0];
  for (std::size_t d = 2; d < in.rank; ++d) {
    const std::size_t i = d + 3U - in.rank;
    const std::int64_t reach = g.dilation[i] * (weight.sizes[d] - 1) + 1;
    const std::int64_t span = in.sizes[d] + 2 * g.padding[i] - reach;
    if (!transposed && span < 0) {
      return mismatch(to_text(in.shape()) + " is too small for a kernel of " + to_text(weight.shape()));
    }
    (*shape)[d] = transposed
                      ? (in.sizes[d] - 1) * g.stride[i] - 2 * g.padding[i] + reach + g.output_padding[i]
                      : span / g.stride[i] + 1;
    if ((*shape)[d] < 0) {
      return mismatch(to_text(in.shape()) + " is too small for its padding");
    }
  }
  return {};
}

Status convolution(const TensorView& in, const TensorView& weight, const TensorView* bias,
                   const Setting& stride, const Setting& padding, const Setting& dilation, bool transposed,
                   const Setting& output_padding, std::int64_t groups, TensorView& out) {
  const Geometry g = geometry_of(in, stride, padding, dilation, output_padding, groups);
  if (!weight_fits(in, weight, g, transposed)) {
    return does_not_fit(in, weight);
  }
  Shape shape;
  SLIPWAY_RETURN_IF_ERROR(output_shape(in, weight, g, transposed, &shape));
  if (bias != nullptr && static_cast<std::int64_t>(bias->count()) != shape[1]) {
    return does_not_fit(in, weight);
  }
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, shape), out);
  return in_floats(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    Volume<T> result = Volume<T>::zeros(out);
    if (bias != nullptr) {
      std::vector<T> offsets(bias->count());
      load(bias->dtype, bias->data, 1, offsets.size(), offsets.data());
      for (std::int64_t i = 0; i < result.planes(); ++i) {
        std::fill_n(result.plane(0, i), result.area(), offsets[static_cast<std::size_t>(i) % offsets.size()]);
      }
    }
    const Volume<T> source(in);
    const Volume<T> kernel(weight);
    if (transposed) {
      scatter_rows(source, &result, kernel, g);
    } else {
      gather_rows(&result, source, kernel, g);
    }
    result.put(out);
    return Status();
  });
}

// The bias's gradient: the sum over everything but the channels.
template <typename T>
void sum_channels(const Volume<T>& gradient, TensorView& out) {
  std::vector<T> sums(static_cast<std::size_t>(gradient.sizes[1]));
  // Images without pixels can be any many.
  const std::int64_t batch = gradient.values.empty() ? 0 : gradient.sizes[0];
  for (std::int64_t n = 0; n < batch; ++n) {
    for (std::int64_t c = 0; c < gradient.sizes[1]; ++c) {
      const T* plane = gradient.plane(n, c);
      for (std::int64_t i = 0; i < gradient.area(); ++i) {
        sums[static_cast<std::size_t>(c)] += plane[i];
      }
    }
  }
  store(out.dtype, sums.data(), sums.size(), out.data, 1);
}

// Gradients of the input, the weight and the bias, as far as they are asked for.
Status convolution_backward(const TensorView& gradient, const TensorView& in, const TensorView& weight,
                            Unused /*bias_sizes*/, const Setting& stride, const Setting& padding,
                            const Setting& dilation, bool transposed, const Setting& output_padding,
                            std::int64_t groups, const EValue& output_mask, TensorView* of_in,
                            TensorView* of_weight, TensorView* of_bias) {
  const auto* mask = std::get_if<BoolList>(&output_mask);
  const Geometry g = geometry_of(in, stride, padding, dilation, output_padding, groups);
  Shape shape;
  const bool fits = mask != nullptr && mask->items.size() == 3 && weight_fits(in, weight, g, transposed) &&
                    output_shape(in, weight, g, transposed, &shape).ok() && shape == gradient.shape();
  if (!fits) {
    return does_not_fit(in, weight);
  }
  const Shape shapes[] = {in.shape(), weight.shape(), Shape{shape[1]}};
  std::array<TensorView*, 3> outs{of_in, of_weight, of_bias};
  for (std::size_t i = 0; i < 3; ++i) {
    outs[i] = mask->items[i] != 0 ? outs[i] : nullptr;
    SLIPWAY_RETURN_IF_ERROR(outs[i] == nullptr ? Status() : resize(outs[i], shapes[i]));
  }
  return in_floats(gradient.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Volume<T> error(gradient);
    const Volume<T> source(in);
    if (outs[0] != nullptr) {
      Volume<T> result = Volume<T>::zeros(in);
      const Volume<T> kernel(weight);
      if (transposed) {
        gather_rows(&result, error, kernel, g);
      } else {
        scatter_rows(error, &result, kernel, g);
      }
      result.put(*outs[0]);
    }
    if (outs[1] != nullptr) {
      Volume<T> result = Volume<T>::zeros(weight);
      correlate_rows(transposed ? source : error, transposed ? error : source, &result, g);
      result.put(*outs[1]);
    }
    if (outs[2] != nullptr) {
      sum_channels(error, *outs[2]);
    }
    return Status();
  });
}

}  // namespace

constexpr KernelTable kConvolutionKernels = {
    {"aten::convolution.out", typed<convolution>},
    {"aten::convolution_backward.out", typed<convolution_backward>},
};

}  // namespace slipway::lean
