// Operators that make one number of many.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "lean/kernels/reduction.h"
#include "lean/kernels/sums.h"
#include "lean/kernels/tables.h"

namespace slipway::lean {
namespace {

std::vector<std::int64_t> only(std::int64_t dim) {
  return {dim};
}

// Sums and products are taken in the output's domain.
template <typename F>
Status fold(Arguments& arguments, const std::vector<std::int64_t>& dims, bool keep, std::size_t out_at,
            Domain domain, F f) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Reduction reduction;
  SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, dims, keep, &out));
  return in_domain(domain, [&](auto zero) {
    using T = decltype(zero);
    return reduction.each<T>(in, out, [&](const Line<T>& line) { return f(line); });
  });
}

// The same for an operator that can follow many lines at once.
template <typename Op>
Status fold_with(Arguments& arguments, const std::vector<std::int64_t>& dims, bool keep, std::size_t out_at,
                 Domain domain, const Op& op) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Reduction reduction;
  SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, dims, keep, &out));
  return in_domain(domain, [&](auto zero) { return reduction.follow<decltype(zero)>(in, out, op); });
}

struct Sum {
  template <typename T>
  static T start(T) {
    return T{};
  }
  template <typename T>
  static T next(T total, T x) {
    return total + x;
  }
  template <typename T>
  static T finish(T total, std::size_t) {
    return total;
  }
  template <typename T>
  T operator()(const Line<T>& line) const {
    T total{};
    line.runs([&total](const T* values, std::size_t count) { total += sum_of_run(values, count); });
    return total;
  }
};

// aten::sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!)
// out)
Status sum(Arguments& arguments) {
  return fold_with(arguments, arguments.integers(1), arguments.boolean(2), 4,
                   domain_of(arguments.tensor(4).dtype), Sum());
}

struct Mean : Sum {
  template <typename T>
  static T finish(T total, std::size_t count) {
    if constexpr (std::is_floating_point_v<T>) {
      return total / static_cast<T>(count);
    } else {
      return T{};  // never: means are taken in floats
    }
  }
  template <typename T>
  T operator()(const Line<T>& line) const {
    return finish(Sum()(line), line.count());
  }
};

// aten::mean.out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out)
Status mean(Arguments& arguments) {
  return fold_with(arguments, arguments.integers(1), arguments.boolean(2), 4,
                   floating(arguments.tensor(4).dtype), Mean());
}
// aten::mean.dtype_out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out)
Status mean_all(Arguments& arguments) {
  return fold_with(arguments, {}, false, 2, floating(arguments.tensor(2).dtype), Mean());
}

struct Product {
  template <typename T>
  T operator()(const Line<T>& line) const {
    if constexpr (std::is_integral_v<T>) {
      std::uint64_t total = 1;
      line.each([&total](T x) { total *= static_cast<std::uint64_t>(x); });
      return static_cast<T>(total);
    } else {
      T total{1};
      line.each([&total](T x) { total *= x; });
      return total;
    }
  }
};

// aten::prod.int_out(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor(a!) out)
Status prod(Arguments& arguments) {
  return fold(arguments, only(arguments.integer(1)), arguments.boolean(2), 4,
              domain_of(arguments.tensor(4).dtype), Product());
}
// aten::prod.out(Tensor self, *, ScalarType? dtype=None, Tensor(a!) out)
Status prod_all(Arguments& arguments) {
  return fold(arguments, {}, false, 2, domain_of(arguments.tensor(2).dtype), Product());
}

// The index of the largest (or smallest) element; NaN counts as the largest of all, the first of equals wins.
template <bool Largest>
struct Best {
  template <typename T>
  static T start(T first) {
    return first;
  }
  // Not less than or equal: so a NaN is taken, and nothing after it.
  template <typename T>
  static bool takes(T best, T x) {
    const bool no_better = Largest ? x <= best : x >= best;
    return static_cast<bool>(static_cast<int>(best == best) & static_cast<int>(!no_better));
  }
  template <typename T>
  static T next(T best, T x) {
    return takes(best, x) ? x : best;
  }
  template <typename T>
  static T finish(T best, std::size_t) {
    return best;
  }

  // The best of some elements, or a NaN where there is one: several lanes at once. Once in the program, not
  // in every loop that calls it.
  template <typename T>
  [[gnu::noinline]] static T best_of(const T* values, std::size_t count) {
    constexpr std::size_t kLanes = 64 / sizeof(T);
    T best = values[0];
    std::size_t i = 0;
    if (count >= kLanes) {
      T lanes[kLanes];
      T numbers[kLanes] = {};  // stays 0 where no NaN was
      std::copy_n(values, kLanes, lanes);
      for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t k = 0; k < kLanes; ++k) {
          const T x = values[i + k];
          lanes[k] = (Largest ? x > lanes[k] : x < lanes[k]) ? x : lanes[k];
          numbers[k] = x != x ? x : numbers[k];
        }
      }
      for (std::size_t k = 0; k < kLanes; ++k) {
        best = numbers[k] != numbers[k] ? numbers[k] : next(best, lanes[k]);
      }
    }
    for (; i < count; ++i) {
      best = next(best, values[i]);
    }
    return best;
  }
  // Among some elements, at least one: the first NaN; else the first that equals the best one. Only the part
  // that has it is searched for it.
  template <typename T>
  [[gnu::noinline]] static std::size_t place_in(const T* values, std::size_t count) {
    constexpr std::size_t kPart = 4096;
    T best = values[0];
    std::size_t place = 0;
    for (std::size_t at = 0; at < count && best == best; at += kPart) {
      const T some = best_of(values + at, std::min(kPart, count - at));
      if (takes(best, some)) {
        best = some;
        place = at;
      }
    }
    if (best != best) {
      while (values[place] == values[place]) {
        ++place;
      }
    } else {
      while (values[place] != best) {
        ++place;
      }
    }
    return place;
  }
  // The best element's place; without it, if it is not `wanted`.
  template <typename T>
  [[gnu::noinline]] static std::int64_t find(const Line<T>& line, T* best, bool wanted) {
    std::int64_t at = 0;
    std::int64_t found = 0;
    *best = line.first();
    line.runs([&](const T* values, std::size_t count) {
      const std::size_t place = wanted ? place_in(values, count) : 0;
      const T some = wanted ? values[place] : best_of(values, count);
      if (at == 0 || takes(*best, some)) {
        *best = some;
        found = at + static_cast<std::int64_t>(place);
      }
      at += static_cast<std::int64_t>(count);
    });
    return found;
  }
  template <typename T>
  std::int64_t index_in(const Line<T>& line) const {
    T best{};
    return find(line, &best, true);
  }
  template <typename T>
  T operator()(const Line<T>& line) const {
    T best{};
    find(line, &best, false);
    return best;
  }
};

bool nothing_to_choose_from(const TensorView& in) {
  return in.count() == 0;
}

// aten::amax.out(Tensor self, int[1] dim=[], bool keepdim=False, *, Tensor(a!) out)
template <bool Largest>
Status extreme(Arguments& arguments) {
  if (nothing_to_choose_from(arguments.tensor(0))) {
    return mismatch("an empty tensor has no largest element");
  }
  return fold_with(arguments, arguments.integers(1), arguments.boolean(2), 3,
                   domain_of(arguments.tensor(0).dtype), Best<Largest>());
}
// aten::max.unary_out(Tensor self, *, Tensor(a!) out)
template <bool Largest>
Status extreme_all(Arguments& arguments) {
  if (nothing_to_choose_from(arguments.tensor(0))) {
    return mismatch("an empty tensor has no largest element");
  }
  return fold_with(arguments, {}, false, 1, domain_of(arguments.tensor(0).dtype), Best<Largest>());
}

// Indices along the dimensions, as int64 whatever domain they are compared in.
template <bool Largest>
Status indices_of_extremes(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep,
                           TensorView* out) {
  Reduction reduction;
  SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, dims, keep, out));
  return in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    return reduction.each_index<T>(in, *out, Best<Largest>());
  });
}

// aten::argmax.out(Tensor self, int? dim=None, bool keepdim=False, *, Tensor(a!) out)
template <bool Largest>
Status argument_of_extreme(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(3);
  const auto dim = arguments.optional_integer(1);
  if (!arguments.fault().ok() || nothing_to_choose_from(in)) {
    return mismatch("an empty tensor has no largest element");
  }
  return indices_of_extremes<Largest>(in, dim ? only(*dim) : std::vector<std::int64_t>{},
                                      arguments.boolean(2), &out);
}

// aten::max.dim_max(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) max, Tensor(b!) max_values)
template <bool Largest>
Status extreme_and_index(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  if (!arguments.fault().ok() || nothing_to_choose_from(in)) {
    return mismatch("an empty tensor has no largest element");
  }
  const std::vector<std::int64_t> dims = only(arguments.integer(1));
  const bool keep = arguments.boolean(2);
  const Status done = indices_of_extremes<Largest>(in, dims, keep, &arguments.tensor(4));
  return done.ok() ? fold_with(arguments, dims, keep, 3, domain_of(in.dtype), Best<Largest>()) : done;
}

struct Any {
  template <typename T>
  T operator()(const Line<T>& line) const {
    bool found = false;
    line.each([&found](T x) { found = found || x != 0; });
    return static_cast<T>(found ? 1 : 0);
  }
};

// Flags that lie in rows, as masks of attention do.
void any_of_rows(const TensorView& in, TensorView& out) {
  const auto length = static_cast<std::size_t>(in.sizes[in.rank - 1]);
  const std::uint8_t* row = in.data;
  for (std::size_t i = 0, rows = out.count(); i < rows; ++i, row += length) {
    std::uint8_t found = 0;
    for (std::size_t k = 0; k < length; ++k) {
      found |= row[k];
    }
    out.data[i] = found != 0 ? 1 : 0;
  }
}

// aten::any.all_out(Tensor self, *, Tensor(a!) out)
Status any_all(Arguments& arguments) {
  return fold(arguments, {}, false, 1, domain_of(arguments.tensor(0).dtype), Any());
}
// aten::any.out(Tensor self, int dim, bool keepdim=False, *, Tensor(a!) out)
Status any_dim(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(3);
  const std::int64_t dim = arguments.integer(1);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const bool flags = in.dtype == DType::kBool && out.dtype == DType::kBool && in.contiguous();
  if (flags && in.rank > 0 && in.count() != 0 && (dim == -1 || dim == in.rank - 1)) {
    Reduction reduction;
    SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, only(dim), arguments.boolean(2), &out));
    if (out.contiguous()) {
      any_of_rows(in, out);
      return {};
    }
  }
  return fold(arguments, only(arguments.integer(1)), arguments.boolean(2), 3,
              domain_of(arguments.tensor(0).dtype), Any());
}
// aten::any.dims_out(Tensor self, int[]? dim=None, bool keepdim=False, *, Tensor(a!) out)
Status any_dims(Arguments& arguments) {
  return fold(arguments, arguments.integers(1), arguments.boolean(2), 3, domain_of(arguments.tensor(0).dtype),
              Any());
}

struct Variance {
  double correction;
  template <typename T>
  T operator()(const Line<T>& line) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T middle = Mean()(line);
      T total{};
      line.runs([&](const T* values, std::size_t count) {
        total += sum_of_each(values, count, [middle](T x) { return (x - middle) * (x - middle); });
      });
      const double divisor = static_cast<double>(line.count()) - correction;
      return total / static_cast<T>(divisor < 0 ? 0.0 : divisor);
    } else {
      return T{};
    }
  }
};

// aten::var.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False,
// Tensor(a!) out)
Status var_correction(Arguments& arguments) {
  return fold(arguments, arguments.integers(1), arguments.boolean(3), 4, floating(arguments.tensor(0).dtype),
              Variance{arguments.optional_real(2).value_or(1.0)});
}
// aten::var.out(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False, *, Tensor(a!) out)
Status var(Arguments& arguments) {
  return fold(arguments, arguments.integers(1), arguments.boolean(3), 4, floating(arguments.tensor(0).dtype),
              Variance{arguments.boolean(2) ? 1.0 : 0.0});
}
// aten::var_mean.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool
// keepdim=False, Tensor(a!) out0, Tensor(b!) out1)
Status var_mean(Arguments& arguments) {
  const Status done = var_correction(arguments);
  return done.ok() ? fold(arguments, arguments.integers(1), arguments.boolean(3), 5,
                          floating(arguments.tensor(0).dtype),
                          [](const auto& line) {
                            using T = std::decay_t<decltype(line.first())>;
                            if constexpr (std::is_floating_point_v<T>) {
                              return Mean()(line);
                            } else {
                              return T{};
                            }
                          })
                   : done;
}

// aten::cumsum.out(Tensor self, int dim, *, ScalarType? dtype=None, Tensor(a!) out)
Status cumsum(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    return along<T>(in, out, arguments.integer(1), [](T* line, std::size_t count) {
      T total{};
      for (std::size_t i = 0; i < count; ++i) {
        total += line[i];
        line[i] = total;
      }
    });
  });
}

constexpr KernelEntry kReduceTable[] = {
    {"aten::amax.out", extreme<true>, 4},
    {"aten::amin.out", extreme<false>, 4},
    {"aten::any.all_out", any_all, 2},
    {"aten::any.dims_out", any_dims, 4},
    {"aten::any.out", any_dim, 4},
    {"aten::argmax.out", argument_of_extreme<true>, 4},
    {"aten::argmin.out", argument_of_extreme<false>, 4},
    {"aten::cumsum.out", cumsum, 4},
    {"aten::max.dim_max", extreme_and_index<true>, 5},
    {"aten::max.unary_out", extreme_all<true>, 2},
    {"aten::mean.dtype_out", mean_all, 3},
    {"aten::mean.out", mean, 5},
    {"aten::min.dim_min", extreme_and_index<false>, 5},
    {"aten::min.unary_out", extreme_all<false>, 2},
    {"aten::prod.int_out", prod, 5},
    {"aten::prod.out", prod_all, 3},
    {"aten::sum.IntList_out", sum, 5},
    {"aten::var.correction_out", var_correction, 5},
    {"aten::var.out", var, 5},
    {"aten::var_mean.correction_out", var_mean, 6},
};

}  // namespace

Status Reduction::plan(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep,
                       TensorView* out) {
  std::array<bool, kMostDims> reduced{};
  for (const std::int64_t item : dims) {
    std::size_t dim = 0;
    SLIPWAY_RETURN_IF_ERROR(in.rank == 0 ? Status() : wrap_dim(item, in.rank, &dim));
    reduced[dim] = true;
  }
  if (dims.empty()) {
    reduced.fill(true);
  }
  const auto strides = in.strides();
  Shape shape;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (reduced[i] && !steps_.empty() && steps_.back() == strides[i] * in.sizes[i]) {
      // With the one before: longer runs.
      sizes_.back() *= in.sizes[i];
      steps_.back() = strides[i];
    } else if (reduced[i] && in.sizes[i] != 1) {
      sizes_.push_back(in.sizes[i]);
      steps_.push_back(strides[i]);
    }
    if (!reduced[i] || keep) {
      kept_[shape.size()] = reduced[i] ? 0 : strides[i];
      shape.push_back(reduced[i] ? 1 : in.sizes[i]);
    }
  }
  return resize(out, shape);
}

KernelTable reduce_kernels() {
  return kReduceTable;
}

}  // namespace slipway::lean
