// Elements in order: all of them, or the largest.
#include <algorithm>
#include <numeric>

#include "base/platform.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
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
