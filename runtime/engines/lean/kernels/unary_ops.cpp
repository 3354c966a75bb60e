// Operators of one tensor: element by element, activations, softmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "lean/kernels/elements.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/reduction.h"
#include "lean/kernels/tensor_iterator.h"
#include "lean/kernels/vector_math.h"

namespace slipway::lean {
namespace {

// Computed in the input's own domain.
template <typename Op>
Status same(const TensorView& in, TensorView& out) {
  return apply_unary(in, out, domain_of(in.dtype), Op());
}

// The same, where narrower integers give the same.
template <typename Op>
Status same_narrow(const TensorView& in, TensorView& out) {
  const Op op;
  Loops loops{unary_loop<Op, std::int64_t>, unary_loop<Op, float>, unary_loop<Op, double>};
  loops.narrow = [](DType dtype, const void* context, const void* const* inputs, void* result,
                    std::size_t count) {
    in_narrow(dtype, [&](auto zero) {
      using T = decltype(zero);
      const T* const of = static_cast<const T*>(inputs[0]);
      unary_loop<Op, T>(context, &of, static_cast<T*>(result), count);
    });
  };
  return map_tensor(in, out, domain_of(in.dtype), loops, &op);
}

// The same, computed in floats.
template <typename Op>
Status real(const TensorView& in, TensorView& out) {
  return apply_real(in, out, Op());
}

// The least integer is its own negative, as in PyTorch.
template <typename T>
T negative(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(0 - static_cast<std::uint64_t>(x));
  } else {
    return -x;
  }
}

// From 0 to 6; NaN stays NaN.
template <typename T>
T to_six(T x) {
  return x < T(0) ? T(0) : x > T(6) ? T(6) : x;
}

#define SLIPWAY_OP(name, expression)     \
  struct name {                          \
    template <typename T>                \
    T operator()(T x) const {            \
      return static_cast<T>(expression); \
    }                                    \
  }

SLIPWAY_OP(Abs, x < 0 ? negative(x) : x == 0 ? T(0) : x);
SLIPWAY_OP(Neg, negative(x));
SLIPWAY_OP(Sign, x > 0 ? 1 : x < 0 ? -1 : x);
SLIPWAY_OP(Relu, x < 0 ? T(0) : x);
SLIPWAY_OP(Not, x == 0 ? 1 : 0);
SLIPWAY_OP(Acos, std::acos(x));
// Zig's C library, of Android's and ARMv6's runners, gives numbers below 1, too.
SLIPWAY_OP(Acosh, x < 1 ? std::numeric_limits<T>::quiet_NaN() : std::acosh(x));
SLIPWAY_OP(Asin, std::asin(x));
SLIPWAY_OP(Asinh, std::asinh(x));
SLIPWAY_OP(Atan, std::atan(x));
SLIPWAY_OP(Atanh, std::atanh(x));
SLIPWAY_OP(Cos, std::cos(x));
SLIPWAY_OP(Cosh, std::cosh(x));
SLIPWAY_OP(Erf, erf_of(x));
SLIPWAY_OP(Exp, exp_of(x));
SLIPWAY_OP(Expm1, std::expm1(x));
SLIPWAY_OP(Log, std::log(x));
SLIPWAY_OP(Log10, std::log10(x));
SLIPWAY_OP(Log1p, std::log1p(x));
SLIPWAY_OP(Log2, std::log2(x));
SLIPWAY_OP(Reciprocal, T(1) / x);
SLIPWAY_OP(Rsqrt, T(1) / std::sqrt(x));
SLIPWAY_OP(Sigmoid, sigmoid_of(x));
SLIPWAY_OP(Silu, x / (T(1) + exp_of(-x)));
SLIPWAY_OP(Sin, std::sin(x));
SLIPWAY_OP(Sinh, std::sinh(x));
SLIPWAY_OP(Sqrt, std::sqrt(x));
SLIPWAY_OP(Tan, std::tan(x));
SLIPWAY_OP(Tanh, tanh_of(x));
SLIPWAY_OP(Hardsigmoid, to_six(x + T(3)) / T(6));
SLIPWAY_OP(Hardswish, x* to_six(x + T(3)) / T(6));

SLIPWAY_OP(Ceil, std::ceil(x));
SLIPWAY_OP(Floor, std::floor(x));
SLIPWAY_OP(Round, std::nearbyint(x));  // ties to even, as the processor rounds by default
SLIPWAY_OP(Trunc, std::trunc(x));
SLIPWAY_OP(IsNan, static_cast<T>(std::isnan(x) ? 1 : 0));
SLIPWAY_OP(IsInf, static_cast<T>(std::isinf(x) ? 1 : 0));

#undef SLIPWAY_OP

// Of flags, which masks of attention are, as bytes.
Status logical_not(const TensorView& in, TensorView& out) {
  if (in.dtype != DType::kBool || out.dtype != DType::kBool) {
    return same<Not>(in, out);
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  for_each_row(
      out, std::array<Operand, 1>{operand_of(in, out)},
      [](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
        const std::uint8_t* flags = from[0];
        if (to_step == 1 && steps[0] == 1) {
          for (std::size_t i = 0; i < length; ++i) {
            to[i] = flags[i] == 0 ? 1 : 0;
          }
          return;
        }
        for (std::size_t i = 0; i < length; ++i, to += to_step, flags += steps[0]) {
          *to = *flags == 0 ? 1 : 0;
        }
      });
  return {};
}

// Rounding leaves integers as they are.
template <typename Op>
Status rounding(const TensorView& in, TensorView& out) {
  return apply_unary(in, out, domain_of(in.dtype), [](auto x) {
    if constexpr (std::is_floating_point_v<decltype(x)>) {
      return Op()(x);
    } else {
      return x;
    }
  });
}

Status bitwise_not(const TensorView& in, TensorView& out) {
  return apply_unary(in, out, Domain::kInt, [truth = in.dtype == DType::kBool](auto x) {
    const auto bits = static_cast<std::int64_t>(x);
    return static_cast<decltype(x)>(truth ? (bits == 0 ? 1 : 0) : ~bits);
  });
}

Status logit(const TensorView& in, std::optional<double> eps, TensorView& out) {
  return apply_real(in, out, [eps](auto x) {
    using T = decltype(x);
    const T low = eps ? T(*eps) : T(0);
    const T kept = !eps ? x : x < low ? low : x > T(1) - low ? T(1) - low : x;
    return std::log(kept / (T(1) - kept));
  });
}

// NaN stays NaN.
Status clamp(const TensorView& in, std::optional<Number> low, std::optional<Number> high, TensorView& out) {
  return apply_unary(in, out, domain_of(out.dtype), [low, high](auto x) {
    using T = decltype(x);
    if (low && x < low->as<T>()) {
      x = low->as<T>();
    }
    if (high && x > high->as<T>()) {
      x = high->as<T>();
    }
    return x;
  });
}

// Activations that have parameters, gated linear units, softmax and its logarithm.

Status gelu(const TensorView& in, const EValue& approximate, TensorView& out) {
  const auto* text = std::get_if<std::string_view>(&approximate);
  if (text != nullptr && *text != "tanh" && *text != "none") {
    return mismatch("gelu is not approximated by \"" + std::string(*text) + "\": tanh and none are known");
  }
  if (text != nullptr && *text == "tanh") {
    return apply_real(in, out, [](auto x) {
      using T = decltype(x);
      constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);
      return T(0.5) * x * (T(1) + tanh_of(kSqrtTwoOverPi * (x + T(0.044715) * x * x * x)));
    });
  }
  return apply_real(in, out, [](auto x) {
    using T = decltype(x);
    constexpr T kSqrtHalf = T(0.70710678118654752440);
    return T(0.5) * x * (T(1) + erf_of(x * kSqrtHalf));
  });
}

Status leaky_relu(const TensorView& in, double slope, TensorView& out) {
  return apply_real(in, out, [slope](auto x) {
    return x > 0 ? x : static_cast<decltype(x)>(x * static_cast<decltype(x)>(slope));
  });
}

Status elu(const TensorView& in, double alpha, double scale, double input_scale, TensorView& out) {
  return apply_real(in, out, [=](auto x) {
    using T = decltype(x);
    return x <= 0 ? static_cast<T>(T(alpha) * T(scale) * std::expm1(x * T(input_scale)))
                  : static_cast<T>(x * T(scale));
  });
}

// One half times the sigmoid of the other.
Status glu(const TensorView& in, std::int64_t dim_given, TensorView& out) {
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(dim_given, in.rank, &dim);
  if (!wrapped.ok() || in.sizes[dim] % 2 != 0) {
    return wrapped.ok() ? mismatch("cannot halve " + to_text(in.shape())) : wrapped;
  }
  Shape shape = in.shape();
  shape[dim] /= 2;
  const Status resized = resize(&out, shape);
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  const auto strides = in.strides();
  Operand first;
  first.data = in.data;
  first.dtype = in.dtype;
  std::copy(strides.begin(), strides.begin() + in.rank, first.steps.begin());
  Operand second = first;
  second.data += shape[dim] * strides[dim] * static_cast<std::int64_t>(size_of(in.dtype));
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, std::array<Operand, 2>{first, second},
           [](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               result[i] = inputs[0][i] / (T(1) + exp_of(-inputs[1][i]));
             }
           });
    return Status();
  });
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

// aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)
template <bool Log>
Status softmax(const TensorView& in, std::int64_t dim, Unused /*half_to_float*/, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
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
    return along<T>(in, out, dim, one, softmax_of_lines<Log, T>);
  });
}

constexpr KernelEntry kUnaryTable[] = {
    {"aten::_log_softmax.out", typed<softmax<true>>, Sharing::kEach},
    {"aten::_softmax.out", typed<softmax<false>>, Sharing::kEach},
    {"aten::elu.out", typed<elu>, Sharing::kEach},
    {"aten::gelu.out", typed<gelu>, Sharing::kEach},
    {"aten::glu.out", typed<glu>},
    {"aten::leaky_relu.out", typed<leaky_relu>, Sharing::kEach},
    {"aten::abs.out", typed<same_narrow<Abs>>, Sharing::kEach},
    {"aten::acos.out", typed<real<Acos>>, Sharing::kEach},
    {"aten::acosh.out", typed<real<Acosh>>, Sharing::kEach},
    {"aten::asin.out", typed<real<Asin>>, Sharing::kEach},
    {"aten::asinh.out", typed<real<Asinh>>, Sharing::kEach},
    {"aten::atan.out", typed<real<Atan>>, Sharing::kEach},
    {"aten::atanh.out", typed<real<Atanh>>, Sharing::kEach},
    {"aten::bitwise_not.out", typed<bitwise_not>, Sharing::kEach},
    {"aten::ceil.out", typed<rounding<Ceil>>, Sharing::kEach},
    {"aten::clamp.out", typed<clamp>, Sharing::kEach},
    {"aten::cos.out", typed<real<Cos>>, Sharing::kEach},
    {"aten::cosh.out", typed<real<Cosh>>, Sharing::kEach},
    {"aten::erf.out", typed<real<Erf>>, Sharing::kEach},
    {"aten::exp.out", typed<real<Exp>>, Sharing::kEach},
    {"aten::expm1.out", typed<real<Expm1>>, Sharing::kEach},
    {"aten::floor.out", typed<rounding<Floor>>, Sharing::kEach},
    {"aten::hardsigmoid.out", typed<real<Hardsigmoid>>, Sharing::kEach},
    {"aten::hardswish.out", typed<real<Hardswish>>, Sharing::kEach},
    {"aten::hardtanh.out", typed<clamp>, Sharing::kEach},
    {"aten::isinf.out", typed<real<IsInf>>, Sharing::kEach},
    {"aten::isnan.out", typed<real<IsNan>>, Sharing::kEach},
    {"aten::log.out", typed<real<Log>>, Sharing::kEach},
    {"aten::log10.out", typed<real<Log10>>, Sharing::kEach},
    {"aten::log1p.out", typed<real<Log1p>>, Sharing::kEach},
    {"aten::log2.out", typed<real<Log2>>, Sharing::kEach},
    {"aten::logical_not.out", typed<logical_not>, Sharing::kEach},
    {"aten::logit.out", typed<logit>, Sharing::kEach},
    {"aten::neg.out", typed<same_narrow<Neg>>, Sharing::kEach},
    {"aten::reciprocal.out", typed<real<Reciprocal>>, Sharing::kEach},
    {"aten::relu.out", typed<same<Relu>>, Sharing::kEach},
    {"aten::round.out", typed<rounding<Round>>, Sharing::kEach},
    {"aten::rsqrt.out", typed<real<Rsqrt>>, Sharing::kEach},
    {"aten::sigmoid.out", typed<real<Sigmoid>>, Sharing::kEach},
    {"aten::sign.out", typed<same<Sign>>, Sharing::kEach},
    {"aten::silu.out", typed<real<Silu>>, Sharing::kEach},
    {"aten::sin.out", typed<real<Sin>>, Sharing::kEach},
    {"aten::sinh.out", typed<real<Sinh>>, Sharing::kEach},
    {"aten::sqrt.out", typed<real<Sqrt>>, Sharing::kEach},
    {"aten::tan.out", typed<real<Tan>>, Sharing::kEach},
    {"aten::tanh.out", typed<real<Tanh>>, Sharing::kEach},
    {"aten::trunc.out", typed<rounding<Trunc>>, Sharing::kEach},
};

}  // namespace

const KernelTable kUnaryKernels = kUnaryTable;

}  // namespace slipway::lean
