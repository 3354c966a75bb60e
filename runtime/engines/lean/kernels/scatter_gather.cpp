// Elements looked up, or written to, by one index each; and sorted.
#include <algorithm>
#include <numeric>

#include "base/platform.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// Whether there is an index in each of `self`s lines at most, and an element of `source` for each.
bool indices_fit(const TensorView& self, std::size_t dim, const TensorView& index, const TensorView* source) {
  bool fits = index.rank == self.rank && (source == nullptr || source->rank == self.rank);
  for (std::size_t i = 0; fits && i < self.rank; ++i) {
    fits = (i == dim || index.sizes[i] <= self.sizes[i]) &&
           (source == nullptr || index.sizes[i] <= source->sizes[i]);
  }
  return fits;
}

Status gather(const TensorView& in, LineDim line, const TensorView& index, Unused /*sparse_grad*/,
              TensorView& out) {
  const std::size_t dim = line.at;
  const Shape shape = index.shape();
  if (!indices_fit(in, dim, index, nullptr) || in.dtype != out.dtype) {
    return mismatch("indices of " + to_text(shape) + " do not fit " + to_text(in.shape()));
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  // A copy: what is checked stays so while the output is written.
  const std::vector<std::int64_t> positions = elements_of<std::int64_t>(index);
  const std::int64_t length = in.rank == 0 ? 1 : in.sizes[dim];
  for (const std::int64_t position : positions) {
    if (position < 0 || position >= length) {
      return mismatch("index " + std::to_string(position) + " is outside " + to_text(in.shape()));
    }
  }
  auto steps = in.strides();
  const std::int64_t along = steps[dim];
  steps[dim] = 0;
  pick_in_lines(in, steps, along, straightened(index, positions.data()), out);
  return {};
}

// Writes `source` (or one number) to elements of a copy of self.
Status scatter_into(const TensorView& self, std::size_t dim, const TensorView& index,
                    const TensorView* source, const Number& number, bool add, TensorView& out) {
  const Shape shape = index.shape();
  if (!indices_fit(self, dim, index, source)) {
    return mismatch("indices of " + to_text(shape) + " do not fit " + to_text(self.shape()));
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, self));
  if (out.data != self.data) {
    copy(out, whole(self));
  }
  const std::vector<std::int64_t> positions = elements_of<std::int64_t>(index);
  auto out_steps = out.strides();
  const std::int64_t step = out_steps[dim];
  out_steps[dim] = 0;
  const auto source_steps = source == nullptr ? out_steps : source->strides();
  const std::size_t size = size_of(out.dtype);
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    T value = number.as<T>();
    std::uint64_t converted = 0;
    store(out.dtype, &value, 1, reinterpret_cast<std::uint8_t*>(&converted), 1);
    const bool moves = !add && (source == nullptr || source->dtype == out.dtype);
    const Axes axes(shape, {out_steps.data(), source_steps.data()});
    Walk<2> walk(axes);
    for (const std::int64_t position : positions) {
      if (position < 0 || position >= (self.rank == 0 ? 1 : self.sizes[dim])) {
        return mismatch("index " + std::to_string(position) + " is outside " + to_text(self.shape()));
      }
      std::uint8_t* to = at(out, walk.offsets[0] + position * step);
      const std::uint8_t* from = source == nullptr ? reinterpret_cast<const std::uint8_t*>(&converted)
                                                   : at(*source, walk.offsets[1]);
      walk.next();
      if (moves) {
        move_bytes(to, from, size);
        continue;
      }
      load(source->dtype, from, 1, 1, &value);
      if (add) {
        value += load_one<T>(out.dtype, to);
      }
      store(out.dtype, &value, 1, to, 1);
    }
    return Status();
  });
}

template <bool kAdd>
Status scatter(const TensorView& in, LineDim dim, const TensorView& index, const TensorView& source,
               TensorView& out) {
  return scatter_into(in, dim.at, index, &source, {}, kAdd, out);
}
Status scatter_value(const TensorView& in, LineDim dim, const TensorView& index, Number number,
                     TensorView& out) {
  return scatter_into(in, dim.at, index, nullptr, number, false, out);
}

// Each index as often as `repeats` says.
Status repeat_interleave(const TensorView& repeats, std::optional<std::int64_t> output_size,
                         TensorView& out) {
  const std::vector<std::int64_t> times = elements_of<std::int64_t>(repeats);
  std::int64_t total = 0;
  for (const std::int64_t count : times) {
    // What has no room anyway is not added up further.
    if (repeats.rank != 1 || count < 0 || count > INT32_MAX || total > INT32_MAX) {
      return mismatch("cannot repeat " + std::to_string(count) + " times");
    }
    total += count;
  }
  if (output_size && *output_size != total) {
    return mismatch(std::to_string(total) + " repetitions where the program has " +
                    std::to_string(*output_size));
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{total}));
  std::int64_t at_out = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    for (std::int64_t k = 0; k < times[i]; ++k) {
      store(out.dtype, &position, 1, at(out, at_out++), 1);
    }
  }
  return {};
}

// Whether element `a` of a line is sorted before `b`; NaN counts as the largest, equals stay as they came.
template <typename T>
struct Before {
  const T* line;
  bool largest;

  static bool above(T a, T b) {
    const bool a_nan = a != a;
    const bool b_nan = b != b;
    return a_nan || b_nan ? a_nan && !b_nan : a > b;
  }
  bool operator()(std::size_t a, std::size_t b) const {
    const bool before = largest ? above(line[a], line[b]) : above(line[b], line[a]);
    const bool after = largest ? above(line[b], line[a]) : above(line[a], line[b]);
    return before || (!after && a < b);
  }
};

// So few are found by one look at each element; more are sorted.
constexpr std::size_t kFew = 32;

// The first `few` of a line's elements in order.
template <typename T>
void first_of(const T* line, std::size_t count, bool largest, std::size_t few,
              std::vector<std::size_t>* order) {
  const Before<T> before{line, largest};
  if (few > kFew) {
    order->resize(count);
    std::iota(order->begin(), order->end(), std::size_t{0});
    if (few == count) {
      std::sort(order->begin(), order->end(), before);
    } else {
      std::partial_sort(order->begin(), order->begin() + static_cast<std::ptrdiff_t>(few), order->end(),
                        before);
    }
    return;
  }
  order->clear();
  for (std::size_t i = 0; i < count && few != 0; ++i) {
    if (order->size() == few) {
      const T last = line[order->back()];
      // Most are not among the first: neither NaN nor beyond the last one.
      if (line[i] == line[i] && last == last && (largest ? line[i] <= last : line[i] >= last)) {
        continue;
      }
      if (!before(i, order->back())) {
        continue;
      }
      order->pop_back();
    }
    order->insert(std::upper_bound(order->begin(), order->end(), i, before), i);
  }
}

// The first `count` of every line, sorted, with where they were.
Status sorted(const TensorView& in, std::size_t dim, std::int64_t count, bool largest, TensorView& values,
              TensorView& indices) {
  Shape shape = in.shape();
  const std::int64_t length = in.rank == 0 ? 1 : shape[dim];
  if (count < 0 || count > length) {
    return mismatch("cannot take " + std::to_string(count) + " of " + to_text(shape));
  }
  Shape outer = shape;
  if (in.rank != 0) {
    shape[dim] = count;
    outer[dim] = 1;
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&values, shape));
  SLIPWAY_RETURN_IF_ERROR(resize(&indices, shape));
  const auto in_steps = in.strides();
  const auto value_steps = values.strides();
  const auto index_steps = indices.strides();
  const Axes axes(outer, {in_steps.data(), value_steps.data(), index_steps.data()});
  if (axes.empty || length == 0) {
    return {};
  }
  return in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> line(static_cast<std::size_t>(length));
    std::vector<std::size_t> order;
    Walk<3> walk(axes);
    do {
      load(in.dtype, at(in, walk.offsets[0]), in_steps[dim], line.size(), line.data());
      first_of(line.data(), line.size(), largest, static_cast<std::size_t>(count), &order);
      for (std::int64_t k = 0; k < count; ++k) {
        const std::size_t position = order[static_cast<std::size_t>(k)];
        const auto place = static_cast<std::int64_t>(position);
        store(values.dtype, &line[position], 1, at(values, walk.offsets[1] + k * value_steps[dim]), 1);
        store(indices.dtype, &place, 1, at(indices, walk.offsets[2] + k * index_steps[dim]), 1);
      }
    } while (walk.next());
    return Status();
  });
}

Status topk(const TensorView& in, std::int64_t k, LineDim dim, bool largest, Unused /*sorted*/,
            TensorView& values, TensorView& indices) {
  return sorted(in, dim.at, k, largest, values, indices);
}
Status sort(const TensorView& in, LineDim dim, bool descending, TensorView& values, TensorView& indices) {
  return sorted(in, dim.at, in.rank == 0 ? 1 : in.sizes[dim.at], descending, values, indices);
}

}  // namespace

constexpr KernelTable kScatterGatherKernels = {
    {"aten::gather.out", typed<gather>},
    {"aten::repeat_interleave.Tensor_out", typed<repeat_interleave>},
    {"aten::scatter.src_out", typed<scatter<false>>, Sharing::kFirst},
    {"aten::scatter.value_out", typed<scatter_value>, Sharing::kFirst},
    {"aten::scatter_add.out", typed<scatter<true>>, Sharing::kFirst},
    {"aten::sort.values", typed<sort>},
    {"aten::topk.values", typed<topk>},
};

}  // namespace slipway::lean
