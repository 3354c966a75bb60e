// Operators of one tensor, element by element.
#include <cmath>
#include <limits>
#include <type_traits>

#include "lean/kernels/pointwise.h"
#include "lean/kernels/tables.h"
#include "lean/kernels/vector_math.h"

namespace slipway::lean {
namespace {

// aten::OP.out(Tensor self, *, Tensor(a!) out), computed in the input's own domain.
template <typename Op>
Status same(Arguments& arguments) {
  return apply_unary(arguments, 1, domain_of(arguments.tensor(0).dtype), Op());
}

// The same, computed in floats.
template <typename Op>
Status real(Arguments& arguments) {
  return apply_real(arguments, 1, Op());
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

// aten::logical_not.out(Tensor self, *, Tensor(a!) out): of flags, which masks of attention are, as bytes.
Status logical_not(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(1);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  if (in.dtype != DType::kBool || out.dtype != DType::kBool) {
    return same<Not>(arguments);
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
Status rounding(Arguments& arguments) {
  return apply_unary(arguments, 1, domain_of(arguments.tensor(0).dtype), [](auto x) {
    if constexpr (std::is_floating_point_v<decltype(x)>) {
      return Op()(x);
    } else {
      return x;
    }
  });
}

// aten::bitwise_not.out(Tensor self, *, Tensor(a!) out)
Status bitwise_not(Arguments& arguments) {
  const bool truth = arguments.tensor(0).dtype == DType::kBool;
  return apply_unary(arguments, 1, Domain::kInt, [truth](auto x) {
    const auto bits = static_cast<std::int64_t>(x);
    return static_cast<decltype(x)>(truth ? (bits == 0 ? 1 : 0) : ~bits);
  });
}

// aten::logit.out(Tensor self, float? eps=None, *, Tensor(a!) out)
Status logit(Arguments& arguments) {
  const auto eps = arguments.optional_real(1);
  return apply_real(arguments, 2, [eps](auto x) {
    using T = decltype(x);
    const T low = eps ? T(*eps) : T(0);
    const T kept = !eps ? x : x < low ? low : x > T(1) - low ? T(1) - low : x;
    return std::log(kept / (T(1) - kept));
  });
}

// aten::clamp.out(Tensor self, Scalar? min=None, Scalar? max=None, *, Tensor(a!) out); NaN stays NaN.
Status clamp(Arguments& arguments) {
  const auto bound = [&](std::size_t i) {
    return arguments.is_none(i) ? std::nullopt : std::optional<Number>(arguments.number(i));
  };
  const Domain domain = domain_of(arguments.tensor(3).dtype);
  return apply_unary(arguments, 3, domain, [low = bound(1), high = bound(2)](auto x) {
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

constexpr KernelEntry kUnaryTable[] = {
    {"aten::abs.out", same<Abs>, 2, Sharing::kEach},
    {"aten::acos.out", real<Acos>, 2, Sharing::kEach},
    {"aten::acosh.out", real<Acosh>, 2, Sharing::kEach},
    {"aten::asin.out", real<Asin>, 2, Sharing::kEach},
    {"aten::asinh.out", real<Asinh>, 2, Sharing::kEach},
    {"aten::atan.out", real<Atan>, 2, Sharing::kEach},
    {"aten::atanh.out", real<Atanh>, 2, Sharing::kEach},
    {"aten::bitwise_not.out", bitwise_not, 2, Sharing::kEach},
    {"aten::ceil.out", rounding<Ceil>, 2, Sharing::kEach},
    {"aten::clamp.out", clamp, 4, Sharing::kEach},
    {"aten::cos.out", real<Cos>, 2, Sharing::kEach},
    {"aten::cosh.out", real<Cosh>, 2, Sharing::kEach},
    {"aten::erf.out", real<Erf>, 2, Sharing::kEach},
    {"aten::exp.out", real<Exp>, 2, Sharing::kEach},
    {"aten::expm1.out", real<Expm1>, 2, Sharing::kEach},
    {"aten::floor.out", rounding<Floor>, 2, Sharing::kEach},
    {"aten::hardsigmoid.out", real<Hardsigmoid>, 2, Sharing::kEach},
    {"aten::hardswish.out", real<Hardswish>, 2, Sharing::kEach},
    {"aten::hardtanh.out", clamp, 4, Sharing::kEach},
    {"aten::isinf.out", real<IsInf>, 2, Sharing::kEach},
    {"aten::isnan.out", real<IsNan>, 2, Sharing::kEach},
    {"aten::log.out", real<Log>, 2, Sharing::kEach},
    {"aten::log10.out", real<Log10>, 2, Sharing::kEach},
    {"aten::log1p.out", real<Log1p>, 2, Sharing::kEach},
    {"aten::log2.out", real<Log2>, 2, Sharing::kEach},
    {"aten::logical_not.out", logical_not, 2, Sharing::kEach},
    {"aten::logit.out", logit, 3, Sharing::kEach},
    {"aten::neg.out", same<Neg>, 2, Sharing::kEach},
    {"aten::reciprocal.out", real<Reciprocal>, 2, Sharing::kEach},
    {"aten::relu.out", same<Relu>, 2, Sharing::kEach},
    {"aten::round.out", rounding<Round>, 2, Sharing::kEach},
    {"aten::rsqrt.out", real<Rsqrt>, 2, Sharing::kEach},
    {"aten::sigmoid.out", real<Sigmoid>, 2, Sharing::kEach},
    {"aten::sign.out", same<Sign>, 2, Sharing::kEach},
    {"aten::silu.out", real<Silu>, 2, Sharing::kEach},
    {"aten::sin.out", real<Sin>, 2, Sharing::kEach},
    {"aten::sinh.out", real<Sinh>, 2, Sharing::kEach},
    {"aten::sqrt.out", real<Sqrt>, 2, Sharing::kEach},
    {"aten::tan.out", real<Tan>, 2, Sharing::kEach},
    {"aten::tanh.out", real<Tanh>, 2, Sharing::kEach},
    {"aten::trunc.out", rounding<Trunc>, 2, Sharing::kEach},
};

}  // namespace

KernelTable unary_kernels() {
  return kUnaryTable;
}

}  // namespace slipway::lean
