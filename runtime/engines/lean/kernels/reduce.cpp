// Operators that make one number of many.
#include <algorithm>
#include <type_traits>

#include "lean/kernels/kernel.h"
#include "lean/kernels/reduction.h"

namespace slipway::lean {
namespace {

// Operators that can follow many lines at once.
struct Follower {
  template <typename T>
  static T start(T first) {
    return first;
  }
  template <typename T>
  static T finish(T total, std::size_t) {
    return total;
  }
};

// Sums and products are taken in the output's domain.
template <typename Op>
Status fold(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep, TensorView& out,
            Domain domain, const Op& op) {
  Reduction reduction;
  SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, dims, keep, &out));
  in_domain(domain, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_base_of_v<Follower, Op>) {
      reduction.follow<T>(in, out, op);
    } else {
      reduction.each<T>(in, out, op);
    }
  });
  return {};
}

struct Sum : Follower {
  template <typename T>
  static T start(T first) {
    return T{} + first;  // of -0, 0
  }
  template <typename T>
  static T next(T total, T x) {
    return total + x;
  }
  template <typename T>
  T operator()(const Line<T>& line) const {
    T total{};
    line.runs([&total](const T* values, std::size_t count) { total += sum_of_run(values, count); });
    return total;
  }
};

Status sum(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep, Unused /*dtype*/,
           TensorView& out) {
  return fold(in, dims, keep, out, domain_of(out.dtype), Sum());
}

struct Mean : Sum {
  template <typename T>
  static T finish(T total, std::size_t count) {
    return total / static_cast<T>(count);
  }
  template <typename T>
  T operator()(const Line<T>& line) const {
    return finish(Sum()(line), line.count());
  }
};

Status mean(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep, Unused /*dtype*/,
            TensorView& out) {
  return fold(in, dims, keep, out, floating(out.dtype), Mean());
}
Status mean_all(const TensorView& in, Unused /*dtype*/, TensorView& out) {
  return fold(in, {}, false, out, floating(out.dtype), Mean());
}

struct Product {
  template <typename T>
  T operator()(const Line<T>& line) const {
    T total{1};
    line.each([&total](T x) { total *= x; });
    return total;
  }
};

Status prod(const TensorView& in, std::int64_t dim, bool keep, Unused /*dtype*/, TensorView& out) {
  return fold(in, {dim}, keep, out, domain_of(out.dtype), Product());
}
Status prod_all(const TensorView& in, Unused /*dtype*/, TensorView& out) {
  return fold(in, {}, false, out, domain_of(out.dtype), Product());
}

// The index of the largest (or smallest) element; NaN counts as the largest of all, the first of equals wins.
template <bool Largest>
struct Best : Follower {
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

  // The best of some elements, or a NaN where there is one. Not inlined: once in the program.
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
  // Where the first NaN is; else the first that equals the best one. Only the part that has it is searched.
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
    const T* end = values + count;
    const T* found = best == best ? std::find(values + place, end, best)
                                  : std::find_if(values + place, end, [](T x) { return x != x; });
    return static_cast<std::size_t>(found - values);
  }
  template <typename T>
  [[gnu::noinline]] static std::int64_t index_in(const Line<T>& line) {
    std::int64_t at = 0;
    std::int64_t found = 0;
    T best = line.first();
    line.runs([&](const T* values, std::size_t count) {
      const std::size_t place = place_in(values, count);
      if (at == 0 || takes(best, values[place])) {
        best = values[place];
        found = at + static_cast<std::int64_t>(place);
      }
      at += static_cast<std::int64_t>(count);
    });
    return found;
  }
  template <typename T>
  T operator()(const Line<T>& line) const {
    T best = line.first();
    line.runs([&best](const T* values, std::size_t count) { best = next(best, best_of(values, count)); });
    return best;
  }
};

Status something_to_choose_from(const TensorView& in) {
  return in.count() == 0 ? mismatch("an empty tensor has no largest element") : Status();
}

template <bool Largest>
Status extreme(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(something_to_choose_from(in));
  return fold(in, dims, keep, out, domain_of(in.dtype), Best<Largest>());
}
template <bool Largest>
Status extreme_all(const TensorView& in, TensorView& out) {
  return extreme<Largest>(in, {}, false, out);
}

// Indices along the dimensions, as int64 whatever domain they are compared in.
template <bool Largest>
Status indices_of_extremes(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep,
                           TensorView* out) {
  SLIPWAY_RETURN_IF_ERROR(something_to_choose_from(in));
  Reduction reduction;
  SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, dims, keep, out));
  in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    reduction.each_index<T>(in, *out, Best<Largest>());
  });
  return {};
}

template <bool Largest>
Status argument_of_extreme(const TensorView& in, std::optional<std::int64_t> dim, bool keep,
                           TensorView& out) {
  return indices_of_extremes<Largest>(in, dim ? Shape{*dim} : Shape(), keep, &out);
}

template <bool Largest>
Status extreme_and_index(const TensorView& in, std::int64_t dim, bool keep, TensorView& values,
                         TensorView& indices) {
  SLIPWAY_RETURN_IF_ERROR(indices_of_extremes<Largest>(in, {dim}, keep, &indices));
  if (values.dtype != in.dtype || indices.dtype != DType::kInt64) {
    return extreme<Largest>(in, {dim}, keep, values);
  }
  Reduction reduction;
  SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, {dim}, keep, &values));
  reduction.pick(in, indices, values);
  return {};
}

struct Any {
  template <typename T>
  T operator()(const Line<T>& line) const {
    bool found = line.count() != 0 && line.first() != 0;
    line.runs([&found](const T* values, std::size_t count) {
      found = found || std::any_of(values, values + count, [](T x) { return x != 0; });
      return !found;
    });
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

Status any_dims(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep, TensorView& out) {
  return fold(in, dims, keep, out, domain_of(in.dtype), Any());
}
Status any_all(const TensorView& in, TensorView& out) {
  return any_dims(in, {}, false, out);
}
Status any_dim(const TensorView& in, std::int64_t dim, bool keep, TensorView& out) {
  const bool flags = in.dtype == DType::kBool && out.dtype == DType::kBool && in.contiguous();
  if (flags && in.rank > 0 && in.count() != 0 && (dim == -1 || dim == in.rank - 1)) {
    Reduction reduction;
    SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, {dim}, keep, &out));
    if (out.contiguous()) {
      any_of_rows(in, out);
      return {};
    }
  }
  return any_dims(in, {dim}, keep, out);
}

struct Variance {
  double correction;
  template <typename T>
  T operator()(const Line<T>& line) const {
    const T middle = Mean()(line);
    T total{};
    line.runs([&](const T* values, std::size_t count) {
      total += sum_of_each(values, count, [middle](T x) { return (x - middle) * (x - middle); });
    });
    const double divisor = static_cast<double>(line.count()) - correction;
    return total / static_cast<T>(divisor < 0 ? 0.0 : divisor);
  }
};

Status var_correction(const TensorView& in, const std::vector<std::int64_t>& dims,
                      std::optional<double> correction, bool keep, TensorView& out) {
  return fold(in, dims, keep, out, floating(in.dtype), Variance{correction.value_or(1.0)});
}
Status var(const TensorView& in, const std::vector<std::int64_t>& dims, bool unbiased, bool keep,
           TensorView& out) {
  return var_correction(in, dims, unbiased ? 1.0 : 0.0, keep, out);
}
Status var_mean(const TensorView& in, const std::vector<std::int64_t>& dims, std::optional<double> correction,
                bool keep, TensorView& out, TensorView& mean_out) {
  SLIPWAY_RETURN_IF_ERROR(var_correction(in, dims, correction, keep, out));
  return fold(in, dims, keep, mean_out, floating(in.dtype), [](const auto& line) { return Mean()(line); });
}

Status cumsum(const TensorView& in, LineDim dim, Unused /*dtype*/, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    return along<T>(
        in, out, dim.at,
        [](T* line, std::size_t count) {
          T total{};
          for (std::size_t i = 0; i < count; ++i) {
            total += line[i];
            line[i] = total;
          }
        },
        [](T* elements, std::size_t length) {
          for (std::size_t i = kLinesTogether; i < length * kLinesTogether; ++i) {
            elements[i] += elements[i - kLinesTogether];
          }
        });
  });
}

}  // namespace

constexpr KernelTable kReduceKernels = {
    {"aten::amax.out", typed<extreme<true>>},
    {"aten::amin.out", typed<extreme<false>>},
    {"aten::any.all_out", typed<any_all>},
    {"aten::any.dims_out", typed<any_dims>},
    {"aten::any.out", typed<any_dim>},
    {"aten::argmax.out", typed<argument_of_extreme<true>>},
    {"aten::argmin.out", typed<argument_of_extreme<false>>},
    {"aten::cumsum.out", typed<cumsum>},
    {"aten::max.dim_max", typed<extreme_and_index<true>>},
    {"aten::max.unary_out", typed<extreme_all<true>>},
    {"aten::mean.dtype_out", typed<mean_all>},
    {"aten::mean.out", typed<mean>},
    {"aten::min.dim_min", typed<extreme_and_index<false>>},
    {"aten::min.unary_out", typed<extreme_all<false>>},
    {"aten::prod.int_out", typed<prod>},
    {"aten::prod.out", typed<prod_all>},
    {"aten::sum.IntList_out", typed<sum>},
    {"aten::var.correction_out", typed<var_correction>},
    {"aten::var.out", typed<var>},
    {"aten::var_mean.correction_out", typed<var_mean>},
};

Status Reduction::plan(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep,
                       TensorView* out) {
  std::array<bool, kMostDims> reduced{};
  for (const std::int64_t item : dims) {
    SLIPWAY_TRY(const std::size_t dim, in.rank == 0 ? Result<std::size_t>(0) : wrap_dim(item, in.rank));
    reduced[dim] = true;
  }
  if (dims.empty()) {
    reduced.fill(true);
  }
  const auto strides = in.strides();
  Shape shape;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (reduced[i]) {
      reduced_.add(in.sizes[i], {strides[i]});
    }
    if (!reduced[i] || keep) {
      kept_[shape.size()] = reduced[i] ? 0 : strides[i];
      shape.push_back(reduced[i] ? 1 : in.sizes[i]);
    }
  }
  reduced_.merge();  // longer runs
  return resize(out, shape);
}

}  // namespace slipway::lean
