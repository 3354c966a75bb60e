// Elements looked up, or written to, by one index each.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "base/platform.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// to[i] = the element at places[i] of line i; steps in elements.
template <typename Bits>
void gather_bits(const std::uint8_t* from, std::int64_t line_step, std::int64_t place_step,
                 const std::int64_t* places, std::size_t count, std::uint8_t* to, std::int64_t to_step) {
  const auto* elements = reinterpret_cast<const Bits*>(from);
  auto* results = reinterpret_cast<Bits*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    const auto line = static_cast<std::int64_t>(i);
    results[line * to_step] = elements[line * line_step + places[i] * place_step];
  }
}

Status gather(const TensorView& in, std::int64_t dim_given, const TensorView& index, Unused /*sparse_grad*/,
              TensorView& out) {
  std::size_t dim = 0;
  const Status wrapped = in.rank == 0 ? Status() : wrap_dim(dim_given, in.rank, &dim);
  if (!wrapped.ok() || index.rank != in.rank || in.dtype != out.dtype) {
    return wrapped.ok()
               ? mismatch("indices of " + to_text(index.shape()) + " do not fit " + to_text(in.shape()))
               : wrapped;
  }
  const Shape shape = index.shape();
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (i != dim && shape[i] > in.sizes[i]) {
      return mismatch("indices of " + to_text(shape) + " do not fit " + to_text(in.shape()));
    }
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  const std::vector<std::int64_t> positions = elements_of<std::int64_t>(index);
  const auto out_steps = out.strides();
  auto in_steps = in.strides();
  const std::int64_t step = in_steps[dim];
  in_steps[dim] = 0;
  const std::int64_t length = in.rank == 0 ? 1 : in.sizes[dim];
  for (const std::int64_t position : positions) {
    if (position < 0 || position >= length) {
      return mismatch("index " + std::to_string(position) + " is outside " + to_text(in.shape()));
    }
  }
  if (positions.empty()) {
    return {};
  }
  // A row of the output's last dimension at a time.
  const std::size_t last = in.rank == 0 ? 0 : std::size_t{in.rank} - 1;
  const std::size_t row = in.rank == 0 ? 1 : static_cast<std::size_t>(shape[last]);
  const Shape rows = in.rank == 0 ? Shape{} : Shape(shape.begin(), shape.end() - 1);
  const Axes axes(rows, {out_steps.data(), in_steps.data()});
  Walk<2> walk(axes);
  for (std::size_t done = 0; done < positions.size(); done += row) {
    in_bits(size_of(out.dtype), [&](auto bits) {
      gather_bits<decltype(bits)>(at(in, walk.offsets[1]), in_steps[last], step, positions.data() + done, row,
                                  at(out, walk.offsets[0]), out_steps[last]);
    });
    walk.next();
  }
  return {};
}

// Writes `source` (or one number) to elements of a copy of self.
Status scatter_into(const TensorView& self, std::int64_t signed_dim, const TensorView& index,
                    const TensorView* source, const Number& number, bool add, TensorView& out) {
  std::size_t dim = 0;
  const Status wrapped = self.rank == 0 ? Status() : wrap_dim(signed_dim, self.rank, &dim);
  if (!wrapped.ok() || index.rank != self.rank || (source != nullptr && source->rank != self.rank)) {
    return wrapped.ok()
               ? mismatch("indices of " + to_text(index.shape()) + " do not fit " + to_text(self.shape()))
               : wrapped;
  }
  const Shape shape = index.shape();
  for (std::size_t i = 0; i < self.rank; ++i) {
    if ((i != dim && shape[i] > self.sizes[i]) || (source != nullptr && shape[i] > source->sizes[i])) {
      return mismatch("indices of " + to_text(shape) + " do not fit " + to_text(self.shape()));
    }
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, self.shape()));
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
        T before{};
        load(out.dtype, to, 1, 1, &before);
        value += before;
      }
      store(out.dtype, &value, 1, to, 1);
    }
    return Status();
  });
}

Status scatter(const TensorView& in, std::int64_t dim, const TensorView& index, const TensorView& source,
               TensorView& out) {
  return scatter_into(in, dim, index, &source, {}, false, out);
}
Status scatter_value(const TensorView& in, std::int64_t dim, const TensorView& index, Number number,
                     TensorView& out) {
  return scatter_into(in, dim, index, nullptr, number, false, out);
}
Status scatter_add(const TensorView& in, std::int64_t dim, const TensorView& index, const TensorView& source,
                   TensorView& out) {
  return scatter_into(in, dim, index, &source, {}, true, out);
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

constexpr KernelEntry kScatterGatherTable[] = {
    {"aten::gather.out", typed<gather>},
    {"aten::repeat_interleave.Tensor_out", typed<repeat_interleave>},
    {"aten::scatter.src_out", typed<scatter>, Sharing::kFirst},
    {"aten::scatter.value_out", typed<scatter_value>, Sharing::kFirst},
    {"aten::scatter_add.out", typed<scatter_add>, Sharing::kFirst},
};

}  // namespace

const KernelTable kScatterGatherKernels = kScatterGatherTable;

// Elements in order: all of them, or the largest.

namespace {

// Whether element `a` of a line comes before `b`: the largest (or smallest) first, NaN as the largest, equals
// as they came.
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
Status sorted(const TensorView& in, std::int64_t signed_dim, std::int64_t count, bool largest,
              TensorView& values, TensorView& indices) {
  std::size_t dim = 0;
  const Status wrapped = in.rank == 0 ? Status() : wrap_dim(signed_dim, in.rank, &dim);
  const std::int64_t length = in.rank == 0 ? 1 : in.sizes[dim];
  if (!wrapped.ok() || count < 0 || count > length) {
    return wrapped.ok() ? mismatch("cannot take " + std::to_string(count) + " of " + to_text(in.shape()))
                        : wrapped;
  }
  Shape shape = in.shape();
  if (in.rank != 0) {
    shape[dim] = count;
  }
  for (TensorView* view : {&values, &indices}) {
    SLIPWAY_RETURN_IF_ERROR(resize(view, shape));
  }
  auto in_steps = in.strides();
  auto value_steps = values.strides();
  auto index_steps = indices.strides();
  const std::int64_t in_step = in.rank == 0 ? 1 : in_steps[dim];
  const std::int64_t value_step = in.rank == 0 ? 1 : value_steps[dim];
  const std::int64_t index_step = in.rank == 0 ? 1 : index_steps[dim];
  Shape outer = in.shape();
  if (in.rank != 0) {
    outer[dim] = 1;
  }
  if (in.count() == 0) {
    return {};
  }
  const std::size_t lines = in.count() / static_cast<std::size_t>(length);
  return in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> line(static_cast<std::size_t>(length));
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < lines; ++i) {
      load(in.dtype, at(in, offset_of(i, outer, in_steps)), in_step, line.size(), line.data());
      first_of(line.data(), line.size(), largest, static_cast<std::size_t>(count), &order);
      for (std::int64_t k = 0; k < count; ++k) {
        const std::size_t position = order[static_cast<std::size_t>(k)];
        const auto index_value = static_cast<std::int64_t>(position);
        store(values.dtype, &line[position], 1, at(values, offset_of(i, outer, value_steps) + k * value_step),
              1);
        store(indices.dtype, &index_value, 1, at(indices, offset_of(i, outer, index_steps) + k * index_step),
              1);
      }
    }
    return Status();
  });
}

Status topk(const TensorView& in, std::int64_t k, std::int64_t dim, bool largest, Unused /*sorted*/,
            TensorView& values, TensorView& indices) {
  return sorted(in, dim, k, largest, values, indices);
}
Status sort(const TensorView& in, std::int64_t dim_given, bool descending, TensorView& values,
            TensorView& indices) {
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(in.rank == 0 ? Status() : wrap_dim(dim_given, in.rank, &dim));
  return sorted(in, dim_given, in.rank == 0 ? 1 : in.sizes[dim], descending, values, indices);
}

constexpr KernelEntry kSortingTable[] = {
    {"aten::sort.values", typed<sort>},
    {"aten::topk.values", typed<topk>},
};

}  // namespace

const KernelTable kSortingKernels = kSortingTable;

}  // namespace slipway::lean
