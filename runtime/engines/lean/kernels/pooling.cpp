// Pooling: one number for every window of an image.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "lean/kernels/elements.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// A setting for rows and columns: one number for both, or one each.
using Pair = std::array<std::int64_t, 2>;

Pair pair_of(const std::vector<std::int64_t>& items, std::int64_t missing) {
  return items.empty() ? Pair{missing, missing} : Pair{items.front(), items.back()};
}

// And so that sums of a few of them stay far from any overflow.
bool both_at_least(Pair pair, std::int64_t least) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return std::all_of(pair.begin(), pair.end(),
                     [least](std::int64_t one) { return one >= least && one <= kMost; });
}

// What a window covers along one dimension: its positions inside the image, and how many it has with the
// padding.
struct Span {
  std::int64_t first;
  std::int64_t last;  // the first one behind
  std::int64_t step;
  std::int64_t all;

  std::int64_t count() const { return last <= first ? 0 : (last - first + step - 1) / step; }
};

struct PoolAxis {
  std::int64_t size, kernel, stride, padding, dilation;
};

// How many windows fit.
std::int64_t windows(const PoolAxis& axis, bool ceil) {
  const std::int64_t span = axis.size + 2 * axis.padding - axis.dilation * (axis.kernel - 1) - 1;
  if (span < 0) {
    return 0;
  }
  std::int64_t count = (span + (ceil ? axis.stride - 1 : 0)) / axis.stride + 1;
  // The last window must begin inside the image or its front padding.
  if (ceil && (count - 1) * axis.stride >= axis.size + axis.padding) {
    --count;
  }
  return count;
}

std::vector<Span> spans_of(const PoolAxis& axis, std::int64_t count) {
  std::vector<Span> spans;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t start = i * axis.stride - axis.padding;
    const std::int64_t end = start + axis.dilation * (axis.kernel - 1) + 1;
    const std::int64_t skipped = start < 0 ? (-start + axis.dilation - 1) / axis.dilation * axis.dilation : 0;
    spans.push_back({start + skipped, std::min(end, axis.size), axis.dilation,
                     std::min(end, axis.size + axis.padding) - start});
  }
  return spans;
}

// Windows that divide the image as evenly as they can.
std::vector<Span> even_spans(std::int64_t size, std::int64_t count) {
  std::vector<Span> spans;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = i * size / count;
    const std::int64_t last = ((i + 1) * size + count - 1) / count;
    spans.push_back({first, last, 1, last - first});
  }
  return spans;
}

// f(plane, rows, row-major number of the first result, results) for every line of windows of every plane.
template <typename T, typename F>
void pool(const TensorView& in, TensorView& out, const std::vector<Span>& rows, std::size_t columns, F f) {
  TensorView target = with_batch(out);
  const Volume<T> source(with_batch(in));
  Volume<T> result = Volume<T>::results(target, {&source.values});
  const auto planes = static_cast<std::size_t>(source.sizes[0] * source.sizes[1]);
  share(planes, source.values.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const T* plane = source.values.data() + i * static_cast<std::size_t>(source.area());
      std::size_t number = i * rows.size() * columns;
      for (const Span& row : rows) {
        f(plane, row, number, result.values.data() + number);
        number += columns;
      }
    }
  });
  result.put(target);
}

template <typename T>
T sum_of(const T* plane, std::int64_t width, const Span& row, const Span& column) {
  if (row.step == 1 && column.step == 1 && column.count() == width) {
    return sum_of_run(plane + row.first * width, static_cast<std::size_t>(row.count() * width));
  }
  T total{};
  for (std::int64_t y = row.first; y < row.last; y += row.step) {
    for (std::int64_t x = column.first; x < column.last; x += column.step) {
      total += plane[y * width + x];
    }
  }
  return total;
}

bool is_image(const TensorView& view) {
  return view.rank == 3 || view.rank == 4;
}

Status cannot(const TensorView& in) {
  return mismatch("cannot pool " + to_text(in.shape()));
}

Shape shape_of(const TensorView& in, std::int64_t rows, std::int64_t columns) {
  Shape shape = in.shape();
  shape[in.rank - 2U] = rows;
  shape[in.rank - 1U] = columns;
  return shape;
}

// The windows of an operator's arguments; the stride is the kernel when it is not given.
struct Windows {
  std::vector<Span> rows, columns;

  // Gives `out` its shape.
  Status prepare(const TensorView& in, Pair kernel, const std::vector<std::int64_t>& strides, Pair padding,
                 Pair dilation, bool ceil, TensorView* out) {
    const Pair stride = strides.empty() ? kernel : pair_of(strides, 1);
    if (!is_image(in) || !both_at_least(kernel, 1) || !both_at_least(stride, 1) ||
        !both_at_least(dilation, 1) || !both_at_least(padding, 0)) {
      return cannot(in);
    }
    std::array<PoolAxis, 2> axes{};
    Pair counts{};
    for (std::size_t i = 0; i < 2; ++i) {
      axes[i] = {in.sizes[in.rank - 2U + i], kernel[i], stride[i], padding[i], dilation[i]};
      counts[i] = windows(axes[i], ceil);
    }
    SLIPWAY_RETURN_IF_EMPTY(resize(out, shape_of(in, counts[0], counts[1])), *out);
    rows = spans_of(axes[0], counts[0]);
    columns = spans_of(axes[1], counts[1]);
    return in.count() == 0 ? cannot(in) : Status();
  }
};

// How many windows, from the one at `at` on, are as wide, each one pixel further.
std::size_t run_of(const std::vector<Span>& columns, std::size_t at) {
  const Span& one = columns[at];
  std::size_t count = 1;
  for (; one.step == 1 && at + count < columns.size(); ++count) {
    const Span& next = columns[at + count];
    const auto by = static_cast<std::int64_t>(count);
    if (next.all != one.all || next.first != one.first + by || next.last != one.last + by) {
      break;
    }
  }
  return count;
}

// The sum of each window over how many pixels it counts as; 0 for a window without any. Windows of a run are
// summed side by side, each in the order that it has alone.
template <typename Count>
Status average(const TensorView& in, const std::vector<Span>& rows, const std::vector<Span>& columns,
               TensorView& out, Count count_of) {
  const std::int64_t width = in.sizes[in.rank - 1U];
  std::vector<std::size_t> runs;
  for (std::size_t at = 0; at < columns.size(); at += runs.back()) {
    runs.push_back(run_of(columns, at));
  }
  return in_floats(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    pool<T>(in, out, rows, columns.size(),
            [&](const T* plane, const Span& row, std::size_t /*number*/, T* to) {
              const Span* column = columns.data();
              for (const std::size_t run : runs) {
                const bool any = row.first < row.last && column->first < column->last;
                std::fill(to, to + run, T(0));
                if (any && run == 1) {
                  *to = sum_of(plane, width, row, *column);
                } else if (any) {
                  for (std::int64_t y = row.first; y < row.last; y += row.step) {
                    for (std::int64_t x = column->first; x < column->last; ++x) {
                      const T* from = plane + y * width + x;
                      for (std::size_t i = 0; i < run; ++i) {
                        to[i] += from[i];
                      }
                    }
                  }
                }
                const T count = any ? static_cast<T>(count_of(row, *column)) : T(1);
                std::for_each(to, to + run, [count](T& sum) { sum /= count; });
                column += run;
                to += run;
              }
            });
    return Status();
  });
}

Status avg_pool(const TensorView& in, const std::vector<std::int64_t>& kernel_size,
                const std::vector<std::int64_t>& strides, const std::vector<std::int64_t>& padding_given,
                bool ceil, bool count_padding, std::optional<std::int64_t> divisor, TensorView& out) {
  Windows found;
  const Status done =
      found.prepare(in, pair_of(kernel_size, 1), strides, pair_of(padding_given, 0), {1, 1}, ceil, &out);
  if (!done.ok() || (divisor && *divisor == 0)) {
    return done.ok() ? cannot(in) : done;
  }
  if (out.count() == 0) {
    return {};  // images without pixels can be any many
  }
  return average(in, found.rows, found.columns, out, [=](const Span& row, const Span& column) {
    return divisor ? *divisor : count_padding ? row.all * column.all : row.count() * column.count();
  });
}

Status adaptive_avg_pool(const TensorView& in, const std::vector<std::int64_t>& output_size,
                         TensorView& out) {
  if (!is_image(in) || output_size.size() != 2 || output_size[0] < 0 || output_size[1] < 0) {
    return cannot(in);
  }
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, shape_of(in, output_size[0], output_size[1])), out);
  return in.count() == 0 ? cannot(in)
                         : average(in, even_spans(in.sizes[in.rank - 2U], output_size[0]),
                                   even_spans(in.sizes[in.rank - 1U], output_size[1]), out,
                                   [](const Span& row, const Span& column) { return row.all * column.all; });
}

Status max_pool(const TensorView& in, const std::vector<std::int64_t>& kernel_size,
                const std::vector<std::int64_t>& strides, const std::vector<std::int64_t>& padding_given,
                const std::vector<std::int64_t>& dilation_given, bool ceil, TensorView& out,
                TensorView& indices) {
  Windows found;
  SLIPWAY_RETURN_IF_ERROR(found.prepare(in, pair_of(kernel_size, 1), strides, pair_of(padding_given, 0),
                                        pair_of(dilation_given, 1), ceil, &out));
  SLIPWAY_RETURN_IF_EMPTY(resize(&indices, out), out);
  std::vector<std::int64_t> positions(out.count());
  in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t width = in.sizes[in.rank - 1U];
    pool<T>(in, out, found.rows, found.columns.size(),
            [&](const T* plane, const Span& row, std::size_t number, T* to) {
              for (const Span& column : found.columns) {
                T best = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                              : std::numeric_limits<T>::lowest();
                std::int64_t position = -1;
                for (std::int64_t y = row.first; y < row.last; y += row.step) {
                  for (std::int64_t x = column.first; x < column.last; x += column.step) {
                    const T value = plane[y * width + x];
                    if (position < 0 || value > best || value != value) {
                      best = value;
                      position = y * width + x;
                    }
                  }
                }
                positions[number++] = position;
                *to++ = best;
              }
            });
  });
  copy(indices, operand_of(straightened(indices, positions.data()), indices));
  return {};
}

Status max_pool_backward(const TensorView& gradient, const TensorView& in, Unused /*kernel_size*/,
                         Unused /*stride*/, Unused /*padding*/, Unused /*dilation*/, Unused /*ceil_mode*/,
                         const TensorView& indices, TensorView& out) {
  if (!is_image(in) || gradient.shape() != indices.shape() || gradient.rank != in.rank) {
    return cannot(in);
  }
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, in), out);
  return in_floats(gradient.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Volume<T> error(with_batch(gradient));
    const Volume<std::int64_t> positions(with_batch(indices));
    TensorView target = with_batch(out);
    Volume<T> result = Volume<T>::zeros(target);
    if (error.sizes[0] != result.sizes[0] || error.sizes[1] != result.sizes[1]) {
      return cannot(in);
    }
    // Images without pixels can be any many.
    const std::int64_t planes = gradient.count() == 0 ? 0 : error.planes();
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      for (std::int64_t i = 0; i < error.area(); ++i) {
        const std::int64_t position = positions.plane(0, plane)[i];
        if (position < 0 || position >= result.area()) {
          return mismatch("index " + std::to_string(position) + " is outside " + to_text(in.shape()));
        }
        result.plane(0, plane)[position] += error.plane(0, plane)[i];
      }
    }
    result.put(target);
    return Status();
  });
}

}  // namespace

constexpr KernelTable kPoolingKernels = {
    {"aten::_adaptive_avg_pool2d.out", typed<adaptive_avg_pool>},
    {"aten::avg_pool2d.out", typed<avg_pool>},
    {"aten::max_pool2d_with_indices.out", typed<max_pool>},
    {"aten::max_pool2d_with_indices_backward.grad_input", typed<max_pool_backward>},
};

}  // namespace slipway::lean
