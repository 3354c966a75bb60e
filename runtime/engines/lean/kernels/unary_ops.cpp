// Operators of one tensor: element by element, activations, softmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "lean/kernels/kernel.h"
#include "lean/kernels/reduction.h"
#include "lean/kernels/tensor_iterator.h"
#include "lean/kernels/vector_math.h"

namespace slipway::lean {
namespace {

// From 0 to 6; NaN stays NaN.
template <typename T>
T to_six(T x) {
  return x < T(0) ? T(0) : x > T(6) ? T(6) : x;
}

// Each operator: its name, what it computes in, and what it makes of x, a T. The least integer is its own
// negative (-fwrapv). Some C libraries (Zig's) give acosh of numbers below 1, too. Ties are rounded to even.
#define SLIPWAY_UNARY_OPS(OP)                                                     \
  OP(abs, kOwn, x < 0 ? T(-x) : x == 0 ? T(0) : x)                                \
  OP(acos, kFloats, std::acos(x))                                                 \
  OP(acosh, kFloats, x < 1 ? std::numeric_limits<T>::quiet_NaN() : std::acosh(x)) \
  OP(asin, kFloats, std::asin(x))                                                 \
  OP(asinh, kFloats, std::asinh(x))                                               \
  OP(atan, kFloats, std::atan(x))                                                 \
  OP(atanh, kFloats, std::atanh(x))                                               \
  OP(ceil, kWide, std::is_integral_v<T> ? x : T(std::ceil(x)))                    \
  OP(cos, kFloats, std::cos(x))                                                   \
  OP(cosh, kFloats, std::cosh(x))                                                 \
  OP(erf, kFloats, erf_of(x))                                                     \
  OP(exp, kFloats, exp_of(x))                                                     \
  OP(expm1, kFloats, std::expm1(x))                                               \
  OP(floor, kWide, std::is_integral_v<T> ? x : T(std::floor(x)))                  \
  OP(hardsigmoid, kFloats, to_six(x + T(3)) / T(6))                               \
  OP(hardswish, kFloats, x* to_six(x + T(3)) / T(6))                              \
  OP(isinf, kFloats, std::isinf(x) ? 1 : 0)                                       \
  OP(isnan, kFloats, std::isnan(x) ? 1 : 0)                                       \
  OP(log, kFloats, std::log(x))                                                   \
  OP(log10, kFloats, std::log10(x))                                               \
  OP(log1p, kFloats, std::log1p(x))                                               \
  OP(log2, kFloats, std::log2(x))                                                 \
  OP(logical_not, kFlags, x == 0 ? 1 : 0)                                         \
  OP(neg, kOwn, -x)                                                               \
  OP(reciprocal, kFloats, T(1) / x)                                               \
  OP(relu, kOwn, x < 0 ? T(0) : x)                                                \
  OP(round, kWide, std::is_integral_v<T> ? x : T(std::nearbyint(x)))              \
  OP(rsqrt, kFloats, T(1) / std::sqrt(x))                                         \
  OP(sigmoid, kFloats, sigmoid_of(x))                                             \
  OP(sign, kOwn, x > 0 ? 1 : x < 0 ? -1 : x)                                      \
  OP(silu, kFloats, x / (T(1) + exp_of(-x)))                                      \
  OP(sin, kFloats, std::sin(x))                                                   \
  OP(sinh, kFloats, std::sinh(x))                                                 \
  OP(sqrt, kFloats, std::sqrt(x))                                                 \
  OP(tan, kFloats, std::tan(x))                                                   \
  OP(tanh, kFloats, tanh_of(x))                                                   \
  OP(trunc, kWide, std::is_integral_v<T> ? x : T(std::trunc(x)))

#define SLIPWAY_OP(name, in, expression) \
  struct Unary_##name {                  \
    template <typename T>                \
    T operator()(T x) const {            \
      return static_cast<T>(expression); \
    }                                    \
  };
SLIPWAY_UNARY_OPS(SLIPWAY_OP)
#undef SLIPWAY_OP

template <typename Op, In kIn>
Status unary(const TensorView& in, TensorView& out) {
  return apply<kIn>(in, out, in.dtype, Op());
}

Status bitwise_not(const TensorView& in, TensorView& out) {
  return in.dtype == DType::kBool ? unary<Unary_logical_not, In::kFlags>(in, out)
                                  : apply<In::kWhole>(in, out, in.dtype, [](std::int64_t x) { return ~x; });
}

Status logit(const TensorView& in, std::optional<double> eps, TensorView& out) {
  return apply<In::kFloats>(in, out, in.dtype, [eps](auto x) {
    using T = decltype(x);
    const T low = eps ? T(*eps) : T(0);
    const T kept = !eps ? x : x < low ? low : x > T(1) - low ? T(1) - low : x;
    return std::log(kept / (T(1) - kept));
  });
}

// NaN stays NaN.
Status clamp(const TensorView& in, std::optional<Number> low, std::optional<Number> high, TensorView& out) {
  const auto kept = [low, high](auto x) {
    using T = decltype(x);
    if (low && x < low->as<T>()) {
      x = low->as<T>();
    }
    if (high && x > high->as<T>()) {
      x = high->as<T>();
    }
    return x;
  };
  const bool fit = fits(low.value_or(Number()), out.dtype) && fits(high.value_or(Number()), out.dtype);
  return apply(in, out, out.dtype, kept, !fit);
}

Status gelu(const TensorView& in, const EValue& approximate, TensorView& out) {
  const auto* text = std::get_if<std::string_view>(&approximate);
  if (text != nullptr && *text != "tanh" && *text != "none") {
    return mismatch("gelu is not approximated by \"" + std::string(*text) + "\": tanh and none are known");
  }
  if (text != nullptr && *text == "tanh") {
    return apply<In::kFloats>(in, out, in.dtype, [](auto x) {
      using T = decltype(x);
      constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);
      return T(0.5) * x * (T(1) + tanh_of(kSqrtTwoOverPi * (x + T(0.044715) * x * x * x)));
    });
  }
  return apply<In::kFloats>(in, out, in.dtype, [](auto x) {
    using T = decltype(x);
    constexpr T kSqrtHalf = T(0.70710678118654752440);
    return T(0.5) * x * (T(1) + erf_of(x * kSqrtHalf));
  });
}

Status leaky_relu(const TensorView& in, double slope, TensorView& out) {
  return apply<In::kFloats>(in, out, in.dtype, [slope](auto x) {
    return x > 0 ? x : static_cast<decltype(x)>(x * static_cast<decltype(x)>(slope));
  });
}

Status elu(const TensorView& in, double alpha, double scale, double input_scale, TensorView& out) {
  return apply<In::kFloats>(in, out, in.dtype, [=](auto x) {
    using T = decltype(x);
    return x <= 0 ? static_cast<T>(T(alpha) * T(scale) * std::expm1(x * T(input_scale)))
                  : static_cast<T>(x * T(scale));
  });
}

// One half times the sigmoid of the other.
Status glu(const TensorView& in, Dim dim, TensorView& out) {
  Shape shape = in.shape();
  if (shape[dim.at] % 2 != 0) {
    return mismatch("cannot halve " + to_text(shape));
  }
  shape[dim.at] /= 2;
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  const Operand first = whole(in);
  Operand second = first;
  advance(&second, shape[dim.at] * first.steps[dim.at]);
  map<In::kFloats>(out, std::array<Operand, 2>{first, second}, in.dtype,
                   [](auto x, auto gate) { return x / (decltype(x)(1) + exp_of(-gate)); });
  return {};
}

// Of kLinesTogether lines, element beside element.
template <bool Log, typename T>
void softmax_of_lines(T* elements, std::size_t length) {
  constexpr std::size_t kLines = kLinesTogether;
  T largest[kLines];
  T total[kLines] = {};
  std::copy_n(elements, kLines, largest);
  const T* const end = elements + length * kLines;
  for (const T* row = elements; row != end; row += kLines) {
    for (std::size_t i = 0; i < kLines; ++i) {
      largest[i] = row[i] > largest[i] ? row[i] : largest[i];
    }
  }
  for (T* row = elements; row != end; row += kLines) {
    for (std::size_t i = 0; i < kLines; ++i) {
      const T x = row[i] - largest[i];
      const T power = exp_of(x);
      row[i] = Log ? x : power;
      total[i] += power;
    }
  }
  for (std::size_t i = 0; i < kLines; ++i) {
    total[i] = Log ? std::log(total[i]) : T(1) / total[i];
  }
  for (T* row = elements; row != end; row += kLines) {
    for (std::size_t i = 0; i < kLines; ++i) {
      row[i] = Log ? row[i] - total[i] : row[i] * total[i];
    }
  }
}

template <bool Log>
Status softmax(const TensorView& in, LineDim dim, Unused /*half_to_float*/, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto one = [](T* line, std::size_t count) {
      constexpr std::size_t kLanes = 16;
      T lanes[kLanes];
      std::fill_n(lanes, kLanes, line[0]);
      std::size_t i = 0;
      // NaN may be passed by: it comes into the total below.
      for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t k = 0; k < kLanes; ++k) {
          lanes[k] = line[i + k] > lanes[k] ? line[i + k] : lanes[k];
        }
      }
      T largest = lanes[0];
      for (std::size_t k = 1; k < kLanes; ++k) {
        largest = lanes[k] > largest ? lanes[k] : largest;
      }
      for (; i < count; ++i) {
        largest = line[i] > largest ? line[i] : largest;
      }
      if constexpr (Log) {
        const T scale = std::log(sum_of_each(line, count, [largest](T x) { return exp_of(x - largest); }));
        for (i = 0; i < count; ++i) {
          line[i] = line[i] - largest - scale;
        }
      } else {
        for (i = 0; i < count; ++i) {
          line[i] = exp_of(line[i] - largest);
        }
        const T scale = T(1) / sum_of_run(line, count);
        for (i = 0; i < count; ++i) {
          line[i] *= scale;
        }
      }
    };
    return along<T>(in, out, dim.at, one, softmax_of_lines<Log, T>);
  });
}

}  // namespace

#define SLIPWAY_UNARY_ROW(name, in, expression) \
  {"aten::" #name ".out", typed<unary<Unary_##name, In::in>>, Sharing::kEach},
constexpr KernelTable kUnaryKernels = {
    SLIPWAY_UNARY_OPS(SLIPWAY_UNARY_ROW)  // rows with their commas
    {"aten::_log_softmax.out", typed<softmax<true>>, Sharing::kEach},
    {"aten::_softmax.out", typed<softmax<false>>, Sharing::kEach},
    {"aten::elu.out", typed<elu>, Sharing::kEach},
    {"aten::gelu.out", typed<gelu>, Sharing::kEach},
    {"aten::glu.out", typed<glu>},
    {"aten::leaky_relu.out", typed<leaky_relu>, Sharing::kEach},
    {"aten::bitwise_not.out", typed<bitwise_not>, Sharing::kEach},
    {"aten::clamp.out", typed<clamp>, Sharing::kEach},
    {"aten::hardtanh.out", typed<clamp>, Sharing::kEach},
    {"aten::logit.out", typed<logit>, Sharing::kEach},
};

}  // namespace slipway::lean
