// Convolution, pooling and resizing of images. For what a delegate left over: plain loops, no packing.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "reduction.h"
#include "tables.h"

namespace slipway::lean {
namespace {

// Elements as T with steps for four dimensions: batch, channel, row, column. A tensor of three has one row.
template <typename T>
struct Image {
  explicit Image(const View& view) {
    const std::size_t extra = 4U - view.rank;
    for (std::size_t i = 0; i < 4; ++i) {
      // Without batch or row: a signal [N, C, L] is an image of one row.
      const bool missing = view.rank == 3 ? i == 2 : i < extra;
      const std::size_t own = view.rank == 3 ? (i < 2 ? i : 2) : i - (missing ? 0 : extra);
      sizes[i] = missing ? 1 : view.sizes[own];
    }
    values.resize(view.count());
    View straight = view;
    straight.dtype = std::is_same_v<T, double> ? DType::kFloat64 : DType::kFloat32;
    for (std::uint8_t i = 0; i < view.rank; ++i) {
      straight.order[i] = i;
    }
    straight.data = reinterpret_cast<std::uint8_t*>(values.data());
    if (!values.empty()) {
      copy(straight, operand_of(view, straight));
    }
  }

  T* plane(std::int64_t n, std::int64_t c) {
    return values.data() + (n * sizes[1] + c) * sizes[2] * sizes[3];
  }
  const T* plane(std::int64_t n, std::int64_t c) const {
    return values.data() + (n * sizes[1] + c) * sizes[2] * sizes[3];
  }

  // Stores the values into `out`, whatever its memory order.
  void put(View& out) const {
    View straight = out;
    straight.dtype = std::is_same_v<T, double> ? DType::kFloat64 : DType::kFloat32;
    for (std::uint8_t i = 0; i < out.rank; ++i) {
      straight.order[i] = i;
    }
    // const_cast: it is only read.
    straight.data = reinterpret_cast<std::uint8_t*>(const_cast<T*>(values.data()));
    if (!values.empty()) {
      copy(out, operand_of(straight, out));
    }
  }

  std::int64_t sizes[4];
  std::vector<T> values;
};

// A setting for rows and columns: one number for both, or for the columns of a signal.
struct Pair {
  std::int64_t row;
  std::int64_t column;
};

Pair pair_of(const std::vector<std::int64_t>& items, std::int64_t missing, bool signal) {
  if (items.empty()) {
    return {missing, missing};
  }
  if (signal) {
    return {missing, items.back()};
  }
  return {items.front(), items.back()};
}

struct Geometry {
  Pair stride, padding, dilation, output_padding;
  std::int64_t groups;
};

template <typename T>
void convolve(const Image<T>& in, const Image<T>& weight, const Geometry& g, Image<T>* out) {
  const std::int64_t group_in = in.sizes[1] / g.groups;
  const std::int64_t group_out = out->sizes[1] / g.groups;
  for (std::int64_t n = 0; n < out->sizes[0]; ++n) {
    for (std::int64_t oc = 0; oc < out->sizes[1]; ++oc) {
      T* target = out->plane(n, oc);
      for (std::int64_t ic = 0; ic < group_in; ++ic) {
        const T* source = in.plane(n, oc / group_out * group_in + ic);
        const T* kernel = weight.plane(oc, ic);
        for (std::int64_t oy = 0; oy < out->sizes[2]; ++oy) {
          for (std::int64_t ox = 0; ox < out->sizes[3]; ++ox) {
            T total{};
            for (std::int64_t ky = 0; ky < weight.sizes[2]; ++ky) {
              const std::int64_t y = oy * g.stride.row - g.padding.row + ky * g.dilation.row;
              if (y < 0 || y >= in.sizes[2]) {
                continue;
              }
              for (std::int64_t kx = 0; kx < weight.sizes[3]; ++kx) {
                const std::int64_t x = ox * g.stride.column - g.padding.column + kx * g.dilation.column;
                if (x >= 0 && x < in.sizes[3]) {
                  total += source[y * in.sizes[3] + x] * kernel[ky * weight.sizes[3] + kx];
                }
              }
            }
            target[oy * out->sizes[3] + ox] += total;
          }
        }
      }
    }
  }
}

template <typename T>
void convolve_transposed(const Image<T>& in, const Image<T>& weight, const Geometry& g, Image<T>* out) {
  const std::int64_t group_in = in.sizes[1] / g.groups;
  const std::int64_t group_out = out->sizes[1] / g.groups;
  for (std::int64_t n = 0; n < in.sizes[0]; ++n) {
    for (std::int64_t ic = 0; ic < in.sizes[1]; ++ic) {
      const T* source = in.plane(n, ic);
      for (std::int64_t oc = 0; oc < group_out; ++oc) {
        T* target = out->plane(n, ic / group_in * group_out + oc);
        const T* kernel = weight.plane(ic, oc);
        for (std::int64_t y = 0; y < in.sizes[2]; ++y) {
          for (std::int64_t x = 0; x < in.sizes[3]; ++x) {
            const T value = source[y * in.sizes[3] + x];
            for (std::int64_t ky = 0; ky < weight.sizes[2]; ++ky) {
              const std::int64_t oy = y * g.stride.row - g.padding.row + ky * g.dilation.row;
              if (oy < 0 || oy >= out->sizes[2]) {
                continue;
              }
              for (std::int64_t kx = 0; kx < weight.sizes[3]; ++kx) {
                const std::int64_t ox = x * g.stride.column - g.padding.column + kx * g.dilation.column;
                if (ox >= 0 && ox < out->sizes[3]) {
                  target[oy * out->sizes[3] + ox] += value * kernel[ky * weight.sizes[3] + kx];
                }
              }
            }
          }
        }
      }
    }
  }
}

bool positive(Pair pair) {
  return pair.row > 0 && pair.column > 0;
}

// aten::convolution.out(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding,
// SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, *, Tensor(a!) out)
Status convolution(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const View& weight = arguments.tensor(1);
  const View* bias = arguments.optional_tensor(2);
  const bool transposed = arguments.boolean(6);
  View& out = arguments.tensor(9);
  const bool signal = in.rank == 3;
  const Geometry g{pair_of(arguments.integers(3), 1, signal), pair_of(arguments.integers(4), 0, signal),
                   pair_of(arguments.integers(5), 1, signal), pair_of(arguments.integers(7), 0, signal),
                   arguments.integer(8)};
  if (!arguments.fault().ok()) {
    return {};
  }
  if ((in.rank != 3 && in.rank != 4) || weight.rank != in.rank || out.rank != in.rank || g.groups <= 0 ||
      !positive(g.stride) || !positive(g.dilation)) {
    return mismatch("cannot convolve " + to_text(in.shape()) + " with " + to_text(weight.shape()) +
                    "; one and two dimensions can be");
  }
  const std::int64_t channels = transposed ? weight.sizes[1] * g.groups : weight.sizes[0];
  const bool fits = transposed ? weight.sizes[0] == in.sizes[1] && in.sizes[1] % g.groups == 0
                               : weight.sizes[1] * g.groups == in.sizes[1] && channels % g.groups == 0;
  if (!fits || channels == 0 || (bias != nullptr && static_cast<std::int64_t>(bias->count()) != channels)) {
    return mismatch("cannot convolve " + to_text(in.shape()) + " with " + to_text(weight.shape()));
  }
  Shape shape = in.shape();
  shape[1] = channels;
  for (std::size_t d = 2; d < in.rank; ++d) {
    const bool row = d == 2 && !signal;
    const auto of = [row](Pair pair) { return row ? pair.row : pair.column; };
    const std::int64_t reach = of(g.dilation) * (weight.sizes[d] - 1) + 1;
    shape[d] = transposed
                   ? (in.sizes[d] - 1) * of(g.stride) - 2 * of(g.padding) + reach + of(g.output_padding)
                   : (in.sizes[d] + 2 * of(g.padding) - reach) / of(g.stride) + 1;
    if (shape[d] < 0) {
      return mismatch(to_text(in.shape()) + " is too small for a kernel of " + to_text(weight.shape()));
    }
  }
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  return in_floats(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    Image<T> result(out);
    std::vector<T> offsets(bias == nullptr ? 0 : bias->count());
    if (bias != nullptr) {
      load(bias->dtype, bias->data, 1, offsets.size(), offsets.data());
    }
    const std::int64_t area = result.sizes[2] * result.sizes[3];
    for (std::int64_t n = 0; n < result.sizes[0]; ++n) {
      for (std::int64_t c = 0; c < channels; ++c) {
        std::fill_n(result.plane(n, c), area, offsets.empty() ? T(0) : offsets[static_cast<std::size_t>(c)]);
      }
    }
    const Image<T> source(in);
    const Image<T> kernel(weight);
    if (transposed) {
      convolve_transposed(source, kernel, g, &result);
    } else {
      convolve(source, kernel, g, &result);
    }
    result.put(out);
    return Status();
  });
}

// How many windows fit.
std::int64_t windows(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                     std::int64_t dilation, bool ceil) {
  const std::int64_t span = size + 2 * padding - dilation * (kernel - 1) - 1;
  if (span < 0) {
    return 0;
  }
  std::int64_t count = (span + (ceil ? stride - 1 : 0)) / stride + 1;
  // The last window must begin inside the image or its front padding.
  if (ceil && (count - 1) * stride >= size + padding) {
    --count;
  }
  return count;
}

bool is_image(const View& view) {
  return view.rank == 3 || view.rank == 4;
}

// [C, H, W] has no batch; Image would take it for a signal.
View with_batch(const View& view) {
  View image = view;
  if (view.rank == 3) {
    image.rank = 4;
    for (std::size_t i = 3; i > 0; --i) {
      image.sizes[i] = view.sizes[i - 1];
      image.order[i] = static_cast<std::uint8_t>(view.order[i - 1] + 1);
    }
    image.sizes[0] = 1;
    image.order[0] = 0;
  }
  return image;
}

// aten::avg_pool2d.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool
// ceil_mode=False, bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out)
Status avg_pool(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const Pair kernel = pair_of(arguments.integers(1), 1, false);
  const std::vector<std::int64_t> strides = arguments.integers(2);
  const Pair stride = strides.empty() ? kernel : pair_of(strides, 1, false);
  const Pair padding = pair_of(arguments.integers(3), 0, false);
  const bool ceil = arguments.boolean(4);
  const bool count_padding = arguments.boolean(5);
  const auto divisor = arguments.optional_integer(6);
  View& out = arguments.tensor(7);
  if (!arguments.fault().ok()) {
    return {};
  }
  if (!is_image(in) || !positive(kernel) || !positive(stride)) {
    return mismatch("cannot pool " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  shape[in.rank - 2U] = windows(in.sizes[in.rank - 2U], kernel.row, stride.row, padding.row, 1, ceil);
  shape[in.rank - 1U] =
      windows(in.sizes[in.rank - 1U], kernel.column, stride.column, padding.column, 1, ceil);
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  View target = with_batch(out);
  return in_floats(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Image<T> source(with_batch(in));
    Image<T> result(target);
    const std::int64_t height = source.sizes[2];
    const std::int64_t width = source.sizes[3];
    for (std::int64_t n = 0; n < result.sizes[0]; ++n) {
      for (std::int64_t c = 0; c < result.sizes[1]; ++c) {
        const T* from = source.plane(n, c);
        T* to = result.plane(n, c);
        for (std::int64_t oy = 0; oy < result.sizes[2]; ++oy) {
          for (std::int64_t ox = 0; ox < result.sizes[3]; ++ox) {
            const std::int64_t top = oy * stride.row - padding.row;
            const std::int64_t left = ox * stride.column - padding.column;
            const std::int64_t bottom = std::min(top + kernel.row, height + padding.row);
            const std::int64_t right = std::min(left + kernel.column, width + padding.column);
            const std::int64_t all = (bottom - top) * (right - left);
            const std::int64_t y0 = std::max<std::int64_t>(top, 0);
            const std::int64_t x0 = std::max<std::int64_t>(left, 0);
            const std::int64_t y1 = std::min(bottom, height);
            const std::int64_t x1 = std::min(right, width);
            T total{};
            for (std::int64_t y = y0; y < y1; ++y) {
              for (std::int64_t x = x0; x < x1; ++x) {
                total += from[y * width + x];
              }
            }
            const std::int64_t inside =
                std::max<std::int64_t>(0, y1 - y0) * std::max<std::int64_t>(0, x1 - x0);
            const std::int64_t count = divisor ? *divisor : count_padding ? all : inside;
            to[oy * result.sizes[3] + ox] = inside == 0 ? T(0) : total / static_cast<T>(count);
          }
        }
      }
    }
    result.put(target);
    return Status();
  });
}

// aten::_adaptive_avg_pool2d.out(Tensor self, SymInt[2] output_size, *, Tensor(a!) out)
Status adaptive_avg_pool(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const std::vector<std::int64_t> wanted = arguments.integers(1);
  View& out = arguments.tensor(2);
  if (!arguments.fault().ok()) {
    return {};
  }
  if (!is_image(in) || wanted.size() != 2 || wanted[0] < 0 || wanted[1] < 0) {
    return mismatch("cannot pool " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  shape[in.rank - 2U] = wanted[0];
  shape[in.rank - 1U] = wanted[1];
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  View target = with_batch(out);
  return in_floats(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Image<T> source(with_batch(in));
    Image<T> result(target);
    const auto first = [](std::int64_t at, std::int64_t size, std::int64_t count) {
      return at * size / count;
    };
    const auto last = [](std::int64_t at, std::int64_t size, std::int64_t count) {
      return ((at + 1) * size + count - 1) / count;
    };
    for (std::int64_t n = 0; n < result.sizes[0]; ++n) {
      for (std::int64_t c = 0; c < result.sizes[1]; ++c) {
        const T* from = source.plane(n, c);
        T* to = result.plane(n, c);
        for (std::int64_t oy = 0; oy < wanted[0]; ++oy) {
          const std::int64_t y0 = first(oy, source.sizes[2], wanted[0]);
          const std::int64_t y1 = last(oy, source.sizes[2], wanted[0]);
          for (std::int64_t ox = 0; ox < wanted[1]; ++ox) {
            const std::int64_t x0 = first(ox, source.sizes[3], wanted[1]);
            const std::int64_t x1 = last(ox, source.sizes[3], wanted[1]);
            T total{};
            for (std::int64_t y = y0; y < y1; ++y) {
              for (std::int64_t x = x0; x < x1; ++x) {
                total += from[y * source.sizes[3] + x];
              }
            }
            to[oy * wanted[1] + ox] = total / static_cast<T>((y1 - y0) * (x1 - x0));
          }
        }
      }
    }
    result.put(target);
    return Status();
  });
}

// aten::max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0,
// int[2] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices)
Status max_pool(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const Pair kernel = pair_of(arguments.integers(1), 1, false);
  const std::vector<std::int64_t> strides = arguments.integers(2);
  const Pair stride = strides.empty() ? kernel : pair_of(strides, 1, false);
  const Pair padding = pair_of(arguments.integers(3), 0, false);
  const Pair dilation = pair_of(arguments.integers(4), 1, false);
  const bool ceil = arguments.boolean(5);
  View& out = arguments.tensor(6);
  View& indices = arguments.tensor(7);
  if (!arguments.fault().ok()) {
    return {};
  }
  if (!is_image(in) || !positive(kernel) || !positive(stride) || !positive(dilation)) {
    return mismatch("cannot pool " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  shape[in.rank - 2U] =
      windows(in.sizes[in.rank - 2U], kernel.row, stride.row, padding.row, dilation.row, ceil);
  shape[in.rank - 1U] =
      windows(in.sizes[in.rank - 1U], kernel.column, stride.column, padding.column, dilation.column, ceil);
  for (View* view : {&out, &indices}) {
    const Status resized = resize(view, shape);
    if (!resized.ok()) {
      return resized;
    }
  }
  View target = with_batch(out);
  const View places = with_batch(indices);
  const auto place_steps = places.strides();
  return in_floats(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Image<T> source(with_batch(in));
    Image<T> result(target);
    const std::int64_t width = source.sizes[3];
    for (std::int64_t n = 0; n < result.sizes[0]; ++n) {
      for (std::int64_t c = 0; c < result.sizes[1]; ++c) {
        const T* from = source.plane(n, c);
        T* to = result.plane(n, c);
        for (std::int64_t oy = 0; oy < result.sizes[2]; ++oy) {
          for (std::int64_t ox = 0; ox < result.sizes[3]; ++ox) {
            T best = -std::numeric_limits<T>::infinity();
            std::int64_t place = -1;
            for (std::int64_t ky = 0; ky < kernel.row; ++ky) {
              const std::int64_t y = oy * stride.row - padding.row + ky * dilation.row;
              for (std::int64_t kx = 0; y >= 0 && y < source.sizes[2] && kx < kernel.column; ++kx) {
                const std::int64_t x = ox * stride.column - padding.column + kx * dilation.column;
                if (x < 0 || x >= width) {
                  continue;
                }
                const T value = from[y * width + x];
                if (place < 0 || value > best || value != value) {
                  best = value;
                  place = y * width + x;
                }
              }
            }
            to[oy * result.sizes[3] + ox] = best;
            const std::int64_t at =
                n * place_steps[0] + c * place_steps[1] + oy * place_steps[2] + ox * place_steps[3];
            store(places.dtype, &place, 1,
                  places.data + at * static_cast<std::int64_t>(size_of(places.dtype)), 1);
          }
        }
      }
    }
    result.put(target);
    return Status();
  });
}

std::vector<double> factors_of(Arguments& arguments, std::size_t i) {
  const auto* list = std::get_if<DoubleList>(&arguments.value(i));
  return list == nullptr ? std::vector<double>() : list->items;
}

// The shape of a resized image: as asked for, or by factors.
Status resized_shape(const View& in, const std::vector<std::int64_t>& sizes,
                     const std::vector<double>& factors, Shape* shape) {
  if (in.rank != 4 || (sizes.size() != 2 && factors.size() != 2)) {
    return mismatch("cannot resize " + to_text(in.shape()));
  }
  *shape = in.shape();
  for (std::size_t i = 0; i < 2; ++i) {
    (*shape)[2 + i] = sizes.size() == 2
                          ? sizes[i]
                          : static_cast<std::int64_t>(static_cast<double>(in.sizes[2 + i]) * factors[i]);
  }
  return {};
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

// aten::upsample_nearest2d.vec_out(Tensor input, SymInt[]? output_size, float[]? scale_factors, *, Tensor(a!)
// out)
Status nearest(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(3);
  const std::vector<double> factors = factors_of(arguments, 2);
  Shape shape;
  Status done = resized_shape(in, arguments.integers(1), factors, &shape);
  if (done.ok()) {
    done = resize(&out, shape);
  }
  if (!done.ok()) {
    return done;
  }
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Image<T> source(in);
    Image<T> result(out);
    const auto rows = scale_of<float>(in.sizes[2], shape[2], factors, 0, false);
    const auto columns = scale_of<float>(in.sizes[3], shape[3], factors, 1, false);
    const auto nearest_to = [](std::int64_t at, float scale, std::int64_t size) {
      return std::min(static_cast<std::int64_t>(std::floor(static_cast<float>(at) * scale)), size - 1);
    };
    for (std::int64_t n = 0; n < shape[0]; ++n) {
      for (std::int64_t c = 0; c < shape[1]; ++c) {
        for (std::int64_t y = 0; y < shape[2]; ++y) {
          const T* row = source.plane(n, c) + nearest_to(y, rows, in.sizes[2]) * in.sizes[3];
          for (std::int64_t x = 0; x < shape[3]; ++x) {
            result.plane(n, c)[y * shape[3] + x] = row[nearest_to(x, columns, in.sizes[3])];
          }
        }
      }
    }
    result.put(out);
    return Status();
  });
}

// Between which pixels a place lies, and how near the second one.
template <typename T>
struct Between {
  Between(std::int64_t at, T scale, std::int64_t size, bool corners) {
    const T place =
        corners ? static_cast<T>(at) * scale : std::max((static_cast<T>(at) + T(0.5)) * scale - T(0.5), T(0));
    first = std::min(static_cast<std::int64_t>(place), size - 1);
    second = std::min(first + 1, size - 1);
    share = std::min(std::max(place - static_cast<T>(first), T(0)), T(1));
  }
  std::int64_t first;
  std::int64_t second;
  T share;
};

// aten::upsample_bilinear2d.vec_out(Tensor input, SymInt[]? output_size, bool align_corners, float[]?
// scale_factors, *, Tensor(a!) out)
Status bilinear(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const bool corners = arguments.boolean(2);
  View& out = arguments.tensor(4);
  const std::vector<double> factors = factors_of(arguments, 3);
  Shape shape;
  Status done = resized_shape(in, arguments.integers(1), factors, &shape);
  if (done.ok()) {
    done = resize(&out, shape);
  }
  if (!done.ok()) {
    return done;
  }
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Image<T> source(in);
    Image<T> result(out);
    const T rows = scale_of<T>(in.sizes[2], shape[2], factors, 0, corners);
    const T columns = scale_of<T>(in.sizes[3], shape[3], factors, 1, corners);
    const std::int64_t width = in.sizes[3];
    for (std::int64_t n = 0; n < shape[0]; ++n) {
      for (std::int64_t c = 0; c < shape[1]; ++c) {
        const T* from = source.plane(n, c);
        for (std::int64_t y = 0; y < shape[2]; ++y) {
          const Between<T> row(y, rows, in.sizes[2], corners);
          for (std::int64_t x = 0; x < shape[3]; ++x) {
            const Between<T> column(x, columns, width, corners);
            const T top = from[row.first * width + column.first] * (T(1) - column.share) +
                          from[row.first * width + column.second] * column.share;
            const T bottom = from[row.second * width + column.first] * (T(1) - column.share) +
                             from[row.second * width + column.second] * column.share;
            result.plane(n, c)[y * shape[3] + x] = top * (T(1) - row.share) + bottom * row.share;
          }
        }
      }
    }
    result.put(out);
    return Status();
  });
}

// Padding by looking back into the image: mirrored without the edge, or the edge again.
template <bool Mirror, std::size_t Dims>
Status pad(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const std::vector<std::int64_t> padding = arguments.integers(1);
  View& out = arguments.tensor(2);
  if (!arguments.fault().ok()) {
    return {};
  }
  if (padding.size() != 2 * Dims || in.rank < Dims) {
    return mismatch("the padding does not fit " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  for (std::size_t i = 0; i < Dims; ++i) {
    const std::size_t dim = in.rank - 1U - i;
    const std::int64_t size = in.sizes[dim];
    const std::int64_t most = Mirror ? size - 1 : INT64_MAX / 4;
    if (padding[2 * i] < 0 || padding[2 * i + 1] < 0 || padding[2 * i] > most || padding[2 * i + 1] > most ||
        size == 0) {
      return mismatch("the padding does not fit " + to_text(in.shape()));
    }
    shape[dim] += padding[2 * i] + padding[2 * i + 1];
  }
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  const auto in_steps = in.strides();
  const auto out_steps = out.strides();
  const std::size_t size = size_of(out.dtype);
  std::array<std::int64_t, kMostDims> place{};
  for (std::size_t i = 0, count = out.count(); i < count; ++i) {
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (std::size_t d = 0; d < in.rank; ++d) {
      std::int64_t at = place[d];
      if (d + Dims >= in.rank) {
        at -= padding[2 * (in.rank - 1U - d)];
        const std::int64_t end = in.sizes[d] - 1;
        at = Mirror ? (at < 0 ? -at : at > end ? 2 * end - at : at) : std::clamp<std::int64_t>(at, 0, end);
      }
      from += at * in_steps[d];
      to += place[d] * out_steps[d];
    }
    std::copy_n(in.data + static_cast<std::size_t>(from) * size, size,
                out.data + static_cast<std::size_t>(to) * size);
    for (std::size_t d = out.rank; d-- > 0;) {
      if (++place[d] < out.sizes[d]) {
        break;
      }
      place[d] = 0;
    }
  }
  return {};
}

constexpr KernelEntry kTable[] = {
    {"aten::_adaptive_avg_pool2d.out", adaptive_avg_pool},
    {"aten::avg_pool2d.out", avg_pool},
    {"aten::convolution.out", convolution},
    {"aten::max_pool2d_with_indices.out", max_pool},
    {"aten::reflection_pad1d.out", pad<true, 1>},
    {"aten::reflection_pad2d.out", pad<true, 2>},
    {"aten::reflection_pad3d.out", pad<true, 3>},
    {"aten::replication_pad1d.out", pad<false, 1>},
    {"aten::replication_pad2d.out", pad<false, 2>},
    {"aten::replication_pad3d.out", pad<false, 3>},
    {"aten::upsample_bilinear2d.vec_out", bilinear},
    {"aten::upsample_nearest2d.vec_out", nearest},
};

}  // namespace

const KernelEntry* spatial_kernels(std::size_t* count) {
  return entries_of(kTable, count);
}

}  // namespace slipway::lean
