// Operators of two tensors, or a tensor and a number, element by element, with broadcasting.
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

DType promoted(const TensorView& a, const TensorView& b) {
  return promote(a.dtype, b.dtype);
}
DType promoted(const TensorView& in, const Number& number) {
  return promote_scalar(in.dtype, !number.integral ? ScalarKind::kFloat
                                  : number.flag    ? ScalarKind::kBool
                                                   : ScalarKind::kInt);
}

// Integers wrap around, as unsigned ones do.
template <typename T>
T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

// a + factor * b
template <typename T>
T add_scaled(T a, T factor, T b) {
  const T product = product_of(factor, b);  // on its own: rounded before it is added, on every processor
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(product));
  } else {
    return a + product;
  }
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

template <typename F>
void narrow_loop(DType dtype, const void* context, const void* const* inputs, void* result,
                 std::size_t count) {
  in_narrow(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const of[] = {static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1])};
    binary_loop<F, T>(context, of, static_cast<T*>(result), count);
  });
}

// out = f(a, b), computed in `domain`; with Narrow also in narrower integers, where that gives the same.
template <bool Narrow = false, typename F>
Status tensors(const TensorView& a, const TensorView& b, TensorView& out, Domain domain, const F& f) {
  Loops loops{binary_loop<F, std::int64_t>, binary_loop<F, float>, binary_loop<F, double>};
  if constexpr (Narrow) {
    loops.narrow = narrow_loop<F>;
  }
  return map_binary(a, b, out, domain, loops, &f);
}

// The same, computed in floats, whatever the tensors' types.
template <typename F>
Status real_tensors(const TensorView& a, const TensorView& b, TensorView& out, const F& f) {
  return map_binary(a, b, out, floating(promoted(a, b)),
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

// out = f(in, number), computed in `domain`.
template <typename F>
Status with_scalar(const TensorView& in, Number number, TensorView& out, Domain domain, const F& f) {
  const WithScalar<F> context{f, number};
  return map_tensor(in, out, domain,
                    {scalar_loop<F, std::int64_t>, scalar_loop<F, float>, scalar_loop<F, double>}, &context);
}

template <typename F>
Status real_with_scalar(const TensorView& in, Number number, TensorView& out, const F& f) {
  const WithScalar<F> context{f, number};
  return map_tensor(in, out, floating(promoted(in, number)),
                    {nullptr, scalar_loop<F, float>, scalar_loop<F, double>}, &context);
}

// out = f(a, b), computed in floats of type `domain`. What is one element in b is read once, and not copied
// beside every block of a.
template <typename F>
Status real_tensors_or_one(const TensorView& a, const TensorView& b, TensorView& out, Domain domain,
                           const F& f) {
  if (b.count() != 1 || !is_floating(b.dtype)) {  // integers may have more digits than a double
    return map_binary(a, b, out, domain, {nullptr, binary_loop<F, float>, binary_loop<F, double>}, &f);
  }
  WithScalar<F> context{f, {}};
  load(b.dtype, b.data, 1, 1, &context.number.real);
  return map_by_one(a, b, out, domain, {nullptr, scalar_loop<F, float>, scalar_loop<F, double>}, &context);
}

template <typename Op, bool Narrow = false>
Status tensor_op(const TensorView& a, const TensorView& b, TensorView& out) {
  return tensors<Narrow>(a, b, out, domain_of(promoted(a, b)), Op());
}
template <typename Op>
Status scalar_op(const TensorView& in, Number number, TensorView& out) {
  return with_scalar(in, number, out, domain_of(promoted(in, number)), Op());
}

#define SLIPWAY_OP(name, expression)     \
  struct name {                          \
    template <typename T>                \
    T operator()(T a, T b) const {       \
      return static_cast<T>(expression); \
    }                                    \
  }

SLIPWAY_OP(Mul, product_of(a, b));
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

// |a| = whole * |b| + rest, exactly; false where that is too large for these numbers, and the C library,
// which counts bit by bit, is to be asked. A whole number below 2^28 times a float is exact in a double.
// Where the quotient was rounded up to a whole number, the rest is negative.
bool divide_exactly(float a, float b, std::int32_t* whole, double* rest) {
  const double dividend = std::abs(static_cast<double>(a));
  const double divisor = std::abs(static_cast<double>(b));
  const double quotient = dividend / divisor;
  if (!(quotient < 268435456.0 && divisor <= std::numeric_limits<float>::max())) {
    return false;
  }
  *whole = static_cast<std::int32_t>(quotient);
  *rest = dividend - *whole * divisor;
  if (*rest < 0) {
    *whole -= 1;
    *rest += divisor;
  }
  return true;
}

// The rest has a's sign.
template <typename T>
T fmod_of(T a, T b) {
  std::int32_t whole = 0;
  double rest = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (divide_exactly(a, b, &whole, &rest)) {
      return std::copysign(static_cast<float>(rest), a);
    }
  }
  return std::fmod(a, b);
}

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
    if constexpr (std::is_same_v<T, float>) {
      std::int32_t whole = 0;
      double rest = 0;
      if (divide_exactly(a, b, &whole, &rest) && whole < 1 << 22) {  // what follows would be as exact
        const bool negative = std::signbit(a) != std::signbit(b);
        return negative ? -static_cast<float>(rest > 0 ? whole + 1 : whole) : static_cast<float>(whole);
      }
    }
    const T rest = fmod_of(a, b);
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
      const T rest = fmod_of(a, b);
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
      return fmod_of(a, b);
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
Status bits(const TensorView& a, const TensorView& b, TensorView& out) {
  return tensors(a, b, out, Domain::kInt, Op());
}
template <typename Op>
Status bits_scalar(const TensorView& in, Number number, TensorView& out) {
  return with_scalar(in, number, out, Domain::kInt, Op());
}

Status mul(const TensorView& a, const TensorView& b, TensorView& out) {
  const Domain domain = domain_of(promoted(a, b));
  return domain == Domain::kInt ? tensors<true>(a, b, out, domain, Mul())
                                : real_tensors_or_one(a, b, out, domain, Mul());
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

template <int Sign>
Status add(const TensorView& a, const TensorView& b, Number alpha, TensorView& out) {
  return tensors<true>(a, b, out, domain_of(promoted(a, b)), Scaled<Sign>{alpha});
}
template <int Sign>
Status add_scalar(const TensorView& in, Number number, Number alpha, TensorView& out) {
  return with_scalar(in, number, out, domain_of(promoted(in, number)), Scaled<Sign>{alpha});
}
Status rsub_scalar(const TensorView& in, Number number, Number alpha, TensorView& out) {
  return with_scalar(in, number, out, domain_of(promoted(in, number)), [alpha](auto a, auto b) {
    using T = decltype(a);
    return add_scaled(b, static_cast<T>(-alpha.as<T>()), a);
  });
}

// True division, also of integers.
Status div(const TensorView& a, const TensorView& b, TensorView& out) {
  return real_tensors_or_one(a, b, out, floating(promoted(a, b)), Quotient());
}
Status div_scalar(const TensorView& in, Number number, TensorView& out) {
  return real_with_scalar(in, number, out, Quotient());
}

enum class Rounding { kNone, kFloor, kTrunc };

// aten::div's `str? rounding_mode`. A program may name others; no arithmetic is known for them.
Status rounding_of(const EValue& mode, Rounding* rounding) {
  const auto* text = std::get_if<std::string_view>(&mode);
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

Status div_mode(const TensorView& a, const TensorView& b, const EValue& mode, TensorView& out) {
  Rounding rounding{};
  SLIPWAY_RETURN_IF_ERROR(rounding_of(mode, &rounding));
  if (rounding == Rounding::kNone) {
    return real_tensors(a, b, out, Quotient());
  }
  const Domain domain = domain_of(promoted(a, b));
  return rounding == Rounding::kFloor ? tensors(a, b, out, domain, FloorDiv())
                                      : tensors(a, b, out, domain, TruncDiv());
}
Status div_scalar_mode(const TensorView& in, Number number, const EValue& mode, TensorView& out) {
  Rounding rounding{};
  SLIPWAY_RETURN_IF_ERROR(rounding_of(mode, &rounding));
  if (rounding == Rounding::kNone) {
    return real_with_scalar(in, number, out, Quotient());
  }
  const Domain domain = domain_of(promoted(in, number));
  return rounding == Rounding::kFloor ? with_scalar(in, number, out, domain, FloorDiv())
                                      : with_scalar(in, number, out, domain, TruncDiv());
}

template <typename Op>
Status real_op(const TensorView& a, const TensorView& b, TensorView& out) {
  return real_tensors(a, b, out, Op());
}

// The number is the base.
struct PowOf {
  template <typename T>
  T operator()(T exponent, T base) const {
    return Pow()(base, exponent);
  }
};

Status pow_scalar_tensor(Number base, const TensorView& exponent, TensorView& out) {
  return with_scalar(exponent, base, out, domain_of(promoted(exponent, base)), PowOf());
}

constexpr KernelEntry kBinaryTable[] = {
    {"aten::add.Scalar_out", typed<add_scalar<1>>, Sharing::kEach},
    {"aten::add.out", typed<add<1>>, Sharing::kEach},
    {"aten::atan2.out", typed<real_op<Atan2>>, Sharing::kEach},
    {"aten::bitwise_and.Scalar_out", typed<bits_scalar<BitAnd>>, Sharing::kEach},
    {"aten::bitwise_and.Tensor_out", typed<bits<BitAnd>>, Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_Scalar_out", typed<bits_scalar<ShiftLeft>>, Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_out", typed<bits<ShiftLeft>>, Sharing::kEach},
    {"aten::bitwise_or.Scalar_out", typed<bits_scalar<BitOr>>, Sharing::kEach},
    {"aten::bitwise_or.Tensor_out", typed<bits<BitOr>>, Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_Scalar_out", typed<bits_scalar<ShiftRight>>, Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_out", typed<bits<ShiftRight>>, Sharing::kEach},
    {"aten::bitwise_xor.Scalar_out", typed<bits_scalar<BitXor>>, Sharing::kEach},
    {"aten::bitwise_xor.Tensor_out", typed<bits<BitXor>>, Sharing::kEach},
    {"aten::div.Scalar_mode_out", typed<div_scalar_mode>, Sharing::kEach},
    {"aten::div.Scalar_out", typed<div_scalar>, Sharing::kEach},
    {"aten::div.out", typed<div>, Sharing::kEach},
    {"aten::div.out_mode", typed<div_mode>, Sharing::kEach},
    {"aten::eq.Scalar_out", typed<scalar_op<Eq>>, Sharing::kEach},
    {"aten::eq.Tensor_out", typed<tensor_op<Eq>>, Sharing::kEach},
    {"aten::floor_divide.out", typed<tensor_op<FloorDiv>>, Sharing::kEach},
    {"aten::fmod.Scalar_out", typed<scalar_op<Fmod>>, Sharing::kEach},
    {"aten::fmod.Tensor_out", typed<tensor_op<Fmod>>, Sharing::kEach},
    {"aten::ge.Scalar_out", typed<scalar_op<Ge>>, Sharing::kEach},
    {"aten::ge.Tensor_out", typed<tensor_op<Ge>>, Sharing::kEach},
    {"aten::gt.Scalar_out", typed<scalar_op<Gt>>, Sharing::kEach},
    {"aten::gt.Tensor_out", typed<tensor_op<Gt>>, Sharing::kEach},
    {"aten::le.Scalar_out", typed<scalar_op<Le>>, Sharing::kEach},
    {"aten::le.Tensor_out", typed<tensor_op<Le>>, Sharing::kEach},
    {"aten::logical_and.out", typed<tensor_op<And>>, Sharing::kEach},
    {"aten::logical_or.out", typed<tensor_op<Or>>, Sharing::kEach},
    {"aten::logical_xor.out", typed<tensor_op<Xor>>, Sharing::kEach},
    {"aten::lt.Scalar_out", typed<scalar_op<Lt>>, Sharing::kEach},
    {"aten::lt.Tensor_out", typed<tensor_op<Lt>>, Sharing::kEach},
    {"aten::maximum.out", typed<tensor_op<Maximum, true>>, Sharing::kEach},
    {"aten::minimum.out", typed<tensor_op<Minimum, true>>, Sharing::kEach},
    {"aten::mul.Scalar_out", typed<scalar_op<Mul>>, Sharing::kEach},
    {"aten::mul.out", typed<mul>, Sharing::kEach},
    {"aten::ne.Scalar_out", typed<scalar_op<Ne>>, Sharing::kEach},
    {"aten::ne.Tensor_out", typed<tensor_op<Ne>>, Sharing::kEach},
    {"aten::pow.Scalar_out", typed<pow_scalar_tensor>, Sharing::kEach},
    {"aten::pow.Tensor_Scalar_out", typed<scalar_op<Pow>>, Sharing::kEach},
    {"aten::pow.Tensor_Tensor_out", typed<tensor_op<Pow>>, Sharing::kEach},
    {"aten::remainder.Scalar_out", typed<scalar_op<Remainder>>, Sharing::kEach},
    {"aten::remainder.Tensor_out", typed<tensor_op<Remainder>>, Sharing::kEach},
    {"aten::rsub.Scalar_out", typed<rsub_scalar>, Sharing::kEach},
    {"aten::sub.Scalar_out", typed<add_scalar<-1>>, Sharing::kEach},
    {"aten::sub.out", typed<add<-1>>, Sharing::kEach},
};

}  // namespace

const KernelTable kBinaryKernels = kBinaryTable;

}  // namespace slipway::lean
