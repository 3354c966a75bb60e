// Operators of two tensors, or a tensor and a number, element by element, with broadcasting.
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "lean/kernels/pointwise.h"
#include "lean/kernels/tables.h"

namespace slipway::lean {
namespace {

ScalarKind kind_of(Arguments& arguments, std::size_t i) {
  const EValue& value = arguments.value(i);
  return std::holds_alternative<double>(value) ? ScalarKind::kFloat
         : std::holds_alternative<bool>(value) ? ScalarKind::kBool
                                               : ScalarKind::kInt;
}

DType promoted(Arguments& arguments) {
  return promote(arguments.tensor(0).dtype, arguments.tensor(1).dtype);
}
DType promoted_scalar(Arguments& arguments) {
  return promote_scalar(arguments.tensor(0).dtype, kind_of(arguments, 1));
}

// a + factor * b
template <typename T>
T add_scaled(T a, T factor, T b) {
  const T product = factor * b;  // on its own: rounded before it is added, on every processor
  return a + product;
}

template <typename F, typename T>
void binary_loop(const void* context, const T* const* inputs, T* result, std::size_t count) {
  const F f = *static_cast<const F*>(context);
  const T* a = inputs[0];
  const T* b = inputs[1];
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = f(a[i], b[i]);
  }
}

// out = f(a, b) for tensors 0 and 1, computed in `domain`.
template <typename F>
Status tensors(Arguments& arguments, std::size_t out_at, Domain domain, const F& f) {
  return map_binary(arguments, out_at, domain,
                    {binary_loop<F, std::int64_t>, binary_loop<F, float>, binary_loop<F, double>}, &f);
}

// The same, computed in floats, whatever the tensors' types.
template <typename F>
Status real_tensors(Arguments& arguments, std::size_t out_at, const F& f) {
  return map_binary(arguments, out_at, floating(promoted(arguments)),
                    {nullptr, binary_loop<F, float>, binary_loop<F, double>}, &f);
}

template <typename F>
struct WithScalar {
  F f;
  Number number;
};

template <typename F, typename T>
void scalar_loop(const void* context, const T* const* inputs, T* result, std::size_t count) {
  const auto own = *static_cast<const WithScalar<F>*>(context);
  const T* a = inputs[0];
  const T b = own.number.template as<T>();
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = own.f(a[i], b);
  }
}

// out = f(tensor 0, number 1), computed in `domain`.
template <typename F>
Status with_scalar(Arguments& arguments, std::size_t out_at, Domain domain, const F& f) {
  const WithScalar<F> context{f, arguments.number(1)};
  return map_unary(arguments, out_at, domain,
                   {scalar_loop<F, std::int64_t>, scalar_loop<F, float>, scalar_loop<F, double>}, &context);
}

template <typename F>
Status real_with_scalar(Arguments& arguments, std::size_t out_at, const F& f) {
  const WithScalar<F> context{f, arguments.number(1)};
  return map_unary(arguments, out_at, floating(promoted_scalar(arguments)),
                   {nullptr, scalar_loop<F, float>, scalar_loop<F, double>}, &context);
}

// out = f(a, b) for tensors 0 and 1, computed in floats of type `domain`. What is one element in tensor 1 is
// read once, and not copied beside every block of tensor 0.
template <typename F>
Status real_tensors_or_one(Arguments& arguments, std::size_t out_at, Domain domain, const F& f) {
  const TensorView& b = arguments.tensor(1);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  if (b.count() != 1 || !is_floating(b.dtype)) {  // integers may have more digits than a double
    return map_binary(arguments, out_at, domain, {nullptr, binary_loop<F, float>, binary_loop<F, double>},
                      &f);
  }
  WithScalar<F> context{f, {}};
  load(b.dtype, b.data, 1, 1, &context.number.real);
  return map_by_one(arguments, out_at, domain, {nullptr, scalar_loop<F, float>, scalar_loop<F, double>},
                    &context);
}

// aten::OP.out(Tensor self, Tensor other, *, Tensor(a!) out)
template <typename Op>
Status tensor_op(Arguments& arguments) {
  return tensors(arguments, 2, domain_of(promoted(arguments)), Op());
}

// aten::OP.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out)
template <typename Op>
Status scalar_op(Arguments& arguments) {
  return with_scalar(arguments, 2, domain_of(promoted_scalar(arguments)), Op());
}

#define SLIPWAY_OP(name, expression)     \
  struct name {                          \
    template <typename T>                \
    T operator()(T a, T b) const {       \
      return static_cast<T>(expression); \
    }                                    \
  }

SLIPWAY_OP(Mul, (a * b));
SLIPWAY_OP(Eq, a == b ? 1 : 0);
SLIPWAY_OP(Ne, a != b ? 1 : 0);
SLIPWAY_OP(Lt, a < b ? 1 : 0);
SLIPWAY_OP(Le, a <= b ? 1 : 0);
SLIPWAY_OP(Gt, a > b ? 1 : 0);
SLIPWAY_OP(Ge, a >= b ? 1 : 0);
SLIPWAY_OP(And, a != 0 && b != 0 ? 1 : 0);
SLIPWAY_OP(Or, a != 0 || b != 0 ? 1 : 0);
SLIPWAY_OP(Xor, (a != 0) != (b != 0) ? 1 : 0);
// NaN wins.
SLIPWAY_OP(Maximum, a != a ? a : b != b ? b : a > b ? a : b);
SLIPWAY_OP(Minimum, a != a ? a : b != b ? b : a < b ? a : b);
SLIPWAY_OP(Atan2, std::atan2(a, b));

// Rounded towards minus infinity; the divisor is not 0 where T is an integer.
template <typename T>
T floor_div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) {
      return 0;
    }
    if (b == -1) {
      return static_cast<T>(0 - static_cast<std::uint64_t>(a));
    }
    const T quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  } else {
    if (b == 0) {
      return a / b;
    }
    const T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
      quotient -= 1;
    }
    if (quotient == 0) {
      return std::copysign(T(0), a / b);
    }
    const T whole = std::floor(quotient);
    return quotient - whole > T(0.5) ? whole + 1 : whole;
  }
}

SLIPWAY_OP(FloorDiv, floor_div(a, b));
SLIPWAY_OP(Quotient, a / b);

struct TruncDiv {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return b == 0 ? 0 : b == -1 ? static_cast<T>(0 - static_cast<std::uint64_t>(a)) : a / b;
    } else {
      return std::trunc(a / b);
    }
  }
};

// The sign of the divisor.
struct Remainder {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0 || b == -1) {
        return 0;
      }
      const T rest = a % b;
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    } else {
      const T rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
  }
};

// The sign of the dividend.
struct Fmod {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return b == 0 || b == -1 ? 0 : a % b;
    } else {
      return std::fmod(a, b);
    }
  }
};

struct Pow {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b < 0) {
        return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
      }
      std::uint64_t result = 1;
      auto base = static_cast<std::uint64_t>(a);
      for (auto left = static_cast<std::uint64_t>(b); left != 0; left >>= 1U, base *= base) {
        result *= (left & 1U) != 0 ? base : 1;
      }
      return static_cast<T>(result);
    } else {
      return b == T(2) ? a * a : std::pow(a, b);
    }
  }
};

// Of bits, in 64 of them: what a narrower type keeps is the same. No shift is by more than there are.
std::int64_t shift_left(std::int64_t a, std::int64_t b) {
  return b < 0 || b > 63 ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << b);
}
std::int64_t shift_right(std::int64_t a, std::int64_t b) {
  return b < 0 || b > 63 ? (a < 0 ? -1 : 0) : a >> b;
}
template <typename T>
std::int64_t bits64(T a) {
  return static_cast<std::int64_t>(a);
}
SLIPWAY_OP(BitAnd, bits64(a) & bits64(b));
SLIPWAY_OP(BitOr, bits64(a) | bits64(b));
SLIPWAY_OP(BitXor, bits64(a) ^ bits64(b));
SLIPWAY_OP(ShiftLeft, shift_left(bits64(a), bits64(b)));
SLIPWAY_OP(ShiftRight, shift_right(bits64(a), bits64(b)));

#undef SLIPWAY_OP

template <typename Op>
Status bits(Arguments& arguments) {
  return tensors(arguments, 2, Domain::kInt, Op());
}
template <typename Op>
Status bits_scalar(Arguments& arguments) {
  return with_scalar(arguments, 2, Domain::kInt, Op());
}

// aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out)
Status mul(Arguments& arguments) {
  const Domain domain = domain_of(promoted(arguments));
  return domain == Domain::kInt ? tensors(arguments, 2, domain, Mul())
                                : real_tensors_or_one(arguments, 2, domain, Mul());
}

// a + alpha * b, or a - alpha * b.
template <int Sign>
struct Scaled {
  template <typename T>
  T operator()(T a, T b) const {
    return add_scaled(a, static_cast<T>(static_cast<T>(Sign) * alpha.template as<T>()), b);
  }

  Number alpha;
};

// aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out); sub is the same with -alpha.
template <int Sign>
Status add(Arguments& arguments) {
  return tensors(arguments, 3, domain_of(promoted(arguments)), Scaled<Sign>{arguments.number(2)});
}

// aten::add.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out)
template <int Sign>
Status add_scalar(Arguments& arguments) {
  return with_scalar(arguments, 3, domain_of(promoted_scalar(arguments)), Scaled<Sign>{arguments.number(2)});
}

// aten::rsub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out)
Status rsub_scalar(Arguments& arguments) {
  const Number alpha = arguments.number(2);
  return with_scalar(arguments, 3, domain_of(promoted_scalar(arguments)), [alpha](auto a, auto b) {
    using T = decltype(a);
    return add_scaled(b, static_cast<T>(-alpha.as<T>()), a);
  });
}

// aten::div.out: true division, also of integers.
Status div(Arguments& arguments) {
  return real_tensors_or_one(arguments, 2, floating(promoted(arguments)), Quotient());
}
Status div_scalar(Arguments& arguments) {
  return real_with_scalar(arguments, 2, Quotient());
}

enum class Rounding { kNone, kFloor, kTrunc };

// aten::div's `str? rounding_mode`. A program may name others; no arithmetic is known for them.
Status rounding_of(Arguments& arguments, std::size_t i, Rounding* rounding) {
  const auto* text = std::get_if<std::string_view>(&arguments.value(i));
  if (text == nullptr) {
    *rounding = Rounding::kNone;
  } else if (*text == "floor") {
    *rounding = Rounding::kFloor;
  } else if (*text == "trunc") {
    *rounding = Rounding::kTrunc;
  } else {
    return mismatch("\"" + std::string(*text) + "\" is not a way to round a quotient: floor and trunc are");
  }
  return {};
}

// aten::div.out_mode(Tensor self, Tensor other, *, str? rounding_mode, Tensor(a!) out)
Status div_mode(Arguments& arguments) {
  Rounding rounding{};
  SLIPWAY_RETURN_IF_ERROR(rounding_of(arguments, 2, &rounding));
  if (rounding == Rounding::kNone) {
    return real_tensors(arguments, 3, Quotient());
  }
  const Domain domain = domain_of(promoted(arguments));
  return rounding == Rounding::kFloor ? tensors(arguments, 3, domain, FloorDiv())
                                      : tensors(arguments, 3, domain, TruncDiv());
}
Status div_scalar_mode(Arguments& arguments) {
  Rounding rounding{};
  SLIPWAY_RETURN_IF_ERROR(rounding_of(arguments, 2, &rounding));
  if (rounding == Rounding::kNone) {
    return real_with_scalar(arguments, 3, Quotient());
  }
  const Domain domain = domain_of(promoted_scalar(arguments));
  return rounding == Rounding::kFloor ? with_scalar(arguments, 3, domain, FloorDiv())
                                      : with_scalar(arguments, 3, domain, TruncDiv());
}

template <typename Op>
Status real_op(Arguments& arguments) {
  return real_tensors(arguments, 2, Op());
}

// The number is the base.
struct PowOf {
  template <typename T>
  T operator()(T exponent, T base) const {
    return Pow()(base, exponent);
  }
};

// aten::pow.Scalar_out(Scalar self, Tensor exponent, *, Tensor(a!) out)
Status pow_scalar_tensor(Arguments& arguments) {
  const TensorView& exponent = arguments.tensor(1);
  TensorView& out = arguments.tensor(2);
  const WithScalar<PowOf> context{{}, arguments.number(0)};
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  return map_tensor(exponent, out, domain_of(promote_scalar(exponent.dtype, kind_of(arguments, 0))),
                    {scalar_loop<PowOf, std::int64_t>, scalar_loop<PowOf, float>, scalar_loop<PowOf, double>},
                    &context);
}

constexpr KernelEntry kBinaryTable[] = {
    {"aten::add.Scalar_out", add_scalar<1>, 4, Sharing::kEach},
    {"aten::add.out", add<1>, 4, Sharing::kEach},
    {"aten::atan2.out", real_op<Atan2>, 3, Sharing::kEach},
    {"aten::bitwise_and.Scalar_out", bits_scalar<BitAnd>, 3, Sharing::kEach},
    {"aten::bitwise_and.Tensor_out", bits<BitAnd>, 3, Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_Scalar_out", bits_scalar<ShiftLeft>, 3, Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_out", bits<ShiftLeft>, 3, Sharing::kEach},
    {"aten::bitwise_or.Scalar_out", bits_scalar<BitOr>, 3, Sharing::kEach},
    {"aten::bitwise_or.Tensor_out", bits<BitOr>, 3, Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_Scalar_out", bits_scalar<ShiftRight>, 3, Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_out", bits<ShiftRight>, 3, Sharing::kEach},
    {"aten::bitwise_xor.Scalar_out", bits_scalar<BitXor>, 3, Sharing::kEach},
    {"aten::bitwise_xor.Tensor_out", bits<BitXor>, 3, Sharing::kEach},
    {"aten::div.Scalar_mode_out", div_scalar_mode, 4, Sharing::kEach},
    {"aten::div.Scalar_out", div_scalar, 3, Sharing::kEach},
    {"aten::div.out", div, 3, Sharing::kEach},
    {"aten::div.out_mode", div_mode, 4, Sharing::kEach},
    {"aten::eq.Scalar_out", scalar_op<Eq>, 3, Sharing::kEach},
    {"aten::eq.Tensor_out", tensor_op<Eq>, 3, Sharing::kEach},
    {"aten::floor_divide.out", tensor_op<FloorDiv>, 3, Sharing::kEach},
    {"aten::fmod.Scalar_out", scalar_op<Fmod>, 3, Sharing::kEach},
    {"aten::fmod.Tensor_out", tensor_op<Fmod>, 3, Sharing::kEach},
    {"aten::ge.Scalar_out", scalar_op<Ge>, 3, Sharing::kEach},
    {"aten::ge.Tensor_out", tensor_op<Ge>, 3, Sharing::kEach},
    {"aten::gt.Scalar_out", scalar_op<Gt>, 3, Sharing::kEach},
    {"aten::gt.Tensor_out", tensor_op<Gt>, 3, Sharing::kEach},
    {"aten::le.Scalar_out", scalar_op<Le>, 3, Sharing::kEach},
    {"aten::le.Tensor_out", tensor_op<Le>, 3, Sharing::kEach},
    {"aten::logical_and.out", tensor_op<And>, 3, Sharing::kEach},
    {"aten::logical_or.out", tensor_op<Or>, 3, Sharing::kEach},
    {"aten::logical_xor.out", tensor_op<Xor>, 3, Sharing::kEach},
    {"aten::lt.Scalar_out", scalar_op<Lt>, 3, Sharing::kEach},
    {"aten::lt.Tensor_out", tensor_op<Lt>, 3, Sharing::kEach},
    {"aten::maximum.out", tensor_op<Maximum>, 3, Sharing::kEach},
    {"aten::minimum.out", tensor_op<Minimum>, 3, Sharing::kEach},
    {"aten::mul.Scalar_out", scalar_op<Mul>, 3, Sharing::kEach},
    {"aten::mul.out", mul, 3, Sharing::kEach},
    {"aten::ne.Scalar_out", scalar_op<Ne>, 3, Sharing::kEach},
    {"aten::ne.Tensor_out", tensor_op<Ne>, 3, Sharing::kEach},
    {"aten::pow.Scalar_out", pow_scalar_tensor, 3, Sharing::kEach},
    {"aten::pow.Tensor_Scalar_out", scalar_op<Pow>, 3, Sharing::kEach},
    {"aten::pow.Tensor_Tensor_out", tensor_op<Pow>, 3, Sharing::kEach},
    {"aten::remainder.Scalar_out", scalar_op<Remainder>, 3, Sharing::kEach},
    {"aten::remainder.Tensor_out", tensor_op<Remainder>, 3, Sharing::kEach},
    {"aten::rsub.Scalar_out", rsub_scalar, 4, Sharing::kEach},
    {"aten::sub.Scalar_out", add_scalar<-1>, 4, Sharing::kEach},
    {"aten::sub.out", add<-1>, 4, Sharing::kEach},
};

}  // namespace

KernelTable binary_kernels() {
  return kBinaryTable;
}

}  // namespace slipway::lean
