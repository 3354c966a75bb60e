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

// The type that arithmetic is done in. A number decides nothing but its category (torch.result_type).
DType promoted(const TensorView& a, const Other& b) {
  if (b.tensor != nullptr) {
    return promote(a.dtype, b.tensor->dtype);
  }
  const bool real = !b.number.integral && !is_floating(a.dtype);
  const bool whole = b.number.integral && !b.number.flag && a.dtype == DType::kBool;
  return real ? DType::kFloat32 : whole ? DType::kInt64 : a.dtype;
}

// out = f(a, b), computed for arguments of type `dtype`. What is one number in b is read once, and not copied
// beside every block of a; integers may have more digits than a Number's double.
template <In kIn = In::kOwn, typename F>
Status combine(const TensorView& a, Other b, TensorView& out, DType dtype, const F& f) {
  if (b.tensor != nullptr) {
    SLIPWAY_RETURN_IF_ERROR(resize_to_all({&a, b.tensor}, &out));
    if (b.tensor->count() != 1 || !is_floating(b.tensor->dtype) || domain_of(dtype) == Domain::kInt) {
      map<kIn>(out, Views<2>{&a, b.tensor}, dtype, f);
      return {};
    }
    load(b.tensor->dtype, b.tensor->data, 1, 1, &b.number.real);
  } else {
    SLIPWAY_RETURN_IF_ERROR(resize(&out, a));
  }
  const auto with_number = [f, number = b.number](auto x) { return f(x, number.template as<decltype(x)>()); };
  map<kIn>(out, Views<1>{&a}, dtype, with_number, !fits(b.number, dtype));
  return {};
}

template <typename Op, In kIn = In::kOwn>
Status binary(const TensorView& a, Other b, TensorView& out) {
  return combine<kIn>(a, b, out, promoted(a, b), Op());
}

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
T rest_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return b == 0 || b == -1 ? T(0) : T(a % b);
  } else if constexpr (std::is_same_v<T, float>) {
    std::int32_t whole = 0;
    double rest = 0;
    return divide_exactly(a, b, &whole, &rest) ? std::copysign(static_cast<float>(rest), a) : std::fmod(a, b);
  } else {
    return std::fmod(a, b);
  }
}

// Rounded towards minus infinity; the divisor is not 0 where T is an integer.
template <typename T>
T floor_div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) {
      return 0;
    }
    if (b == -1) {
      return T(-a);
    }
    const T quotient = T(a / b);
    return T(quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
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
    const T rest = rest_of(a, b);
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

template <typename T>
T trunc_div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return b == 0 ? T(0) : b == -1 ? T(-a) : T(a / b);
  } else {
    return std::trunc(a / b);
  }
}

// The sign of the divisor.
template <typename T>
T remainder_of(T a, T b) {
  const T rest = rest_of(a, b);
  // Without a jump, which signs that come by chance would mislead.
  const bool other = (rest != 0) & ((rest < 0) != (b < 0));
  return T(rest + (other ? b : T(0)));
}

template <typename T>
T power_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b < 0) {
      return T(a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0);
    }
    T result = 1;
    for (; b != 0; b = T(b >> 1), a = T(a * a)) {
      result = (b & 1) != 0 ? T(result * a) : result;
    }
    return result;
  } else {
    return std::pow(a, b);
  }
}

// Powers of activation functions' polynomials: a call for each element would take longer than all else.
template <int kPower>
struct SmallPower {
  template <typename T>
  T operator()(T a, T) const {
    if constexpr (kPower == 2) {
      return a * a;
    } else if constexpr (std::is_same_v<T, float>) {
      // In a double, which is as near as the C library's result.
      const double wide = a;
      return static_cast<float>(wide * wide * wide);
    } else {
      return power_of(a, T(kPower));
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

// Each operator: its name, what it computes in, and what it makes of a and b, which are T's. These take
// numbers for b, too.
#define SLIPWAY_OPS_WITH_NUMBERS(OP) \
  OP(bitwise_and, kWhole, a& b)      \
  OP(bitwise_or, kWhole, a | b)      \
  OP(bitwise_xor, kWhole, a ^ b)     \
  OP(eq, kWide, a == b ? 1 : 0)      \
  OP(fmod, kOwn, rest_of(a, b))      \
  OP(ge, kWide, a >= b ? 1 : 0)      \
  OP(gt, kWide, a > b ? 1 : 0)       \
  OP(le, kWide, a <= b ? 1 : 0)      \
  OP(lt, kWide, a < b ? 1 : 0)       \
  OP(ne, kWide, a != b ? 1 : 0)      \
  OP(remainder, kOwn, remainder_of(a, b))

// NaN wins over other numbers.
#define SLIPWAY_OPS_OF_TENSORS(OP)                           \
  OP(atan2, kFloats, std::atan2(a, b))                       \
  OP(floor_divide, kOwn, floor_div(a, b))                    \
  OP(logical_and, kFlags, a != 0 && b != 0 ? 1 : 0)          \
  OP(logical_or, kFlags, a != 0 || b != 0 ? 1 : 0)           \
  OP(logical_xor, kFlags, (a != 0) != (b != 0) ? 1 : 0)      \
  OP(maximum, kOwn, a != a ? a : b != b ? b : a > b ? a : b) \
  OP(minimum, kOwn, a != a ? a : b != b ? b : a < b ? a : b)

#define SLIPWAY_OP(name, in, expression) \
  struct Binary_##name {                 \
    template <typename T>                \
    T operator()(T a, T b) const {       \
      return static_cast<T>(expression); \
    }                                    \
  };
SLIPWAY_OPS_WITH_NUMBERS(SLIPWAY_OP)
SLIPWAY_OPS_OF_TENSORS(SLIPWAY_OP)
SLIPWAY_OP(left_shift, kWhole, shift_left(a, b))
SLIPWAY_OP(mul, kOwn, a* b)
SLIPWAY_OP(pow, kWide, power_of(a, b))
SLIPWAY_OP(quotient, kFloats, a / b)
SLIPWAY_OP(right_shift, kWhole, shift_right(a, b))
SLIPWAY_OP(truncated, kOwn, trunc_div(a, b))
#undef SLIPWAY_OP

// a + alpha * b, or a - alpha * b; the other way round with `kSwap`. Integers wrap around (-fwrapv).
template <int kSign, bool kSwap = false>
struct Scaled {
  template <typename T>
  T operator()(T a, T b) const {
    const T factor = static_cast<T>(static_cast<T>(kSign) * alpha.template as<T>());
    // On its own: rounded before it is added, on every processor.
    const T product = static_cast<T>(factor * (kSwap ? a : b));
    return static_cast<T>((kSwap ? b : a) + product);
  }

  Number alpha;
};

template <int kSign, bool kSwap = false>
Status add(const TensorView& a, Other b, Number alpha, TensorView& out) {
  return combine(a, b, out, promoted(a, b), Scaled<kSign, kSwap>{alpha});
}

// aten::div's `str? rounding_mode`; true division, also of integers, without one. A program may name others;
// no arithmetic is known for them.
Status div_mode(const TensorView& a, Other b, const EValue& mode, TensorView& out) {
  const auto* text = std::get_if<std::string_view>(&mode);
  if (text == nullptr) {
    return binary<Binary_quotient, In::kFloats>(a, b, out);
  }
  if (*text == "floor") {
    return binary<Binary_floor_divide>(a, b, out);
  }
  return *text == "trunc" ? binary<Binary_truncated>(a, b, out)
                          : mismatch("\"" + std::string(*text) +
                                     "\" is not a way to round a quotient: floor and trunc are");
}

// The number is the exponent.
Status pow_tensor_scalar(const TensorView& base, Other exponent, TensorView& out) {
  const double power = exponent.tensor == nullptr ? exponent.number.real : 0;
  return power == 2   ? binary<SmallPower<2>, In::kWide>(base, exponent, out)
         : power == 3 ? binary<SmallPower<3>, In::kWide>(base, exponent, out)
                      : binary<Binary_pow, In::kWide>(base, exponent, out);
}

// The number is the base.
Status pow_scalar_tensor(Other base, const TensorView& exponent, TensorView& out) {
  return combine<In::kWide>(exponent, base, out, promoted(exponent, base),
                            [](auto power, auto number) { return power_of(number, power); });
}

}  // namespace

#define SLIPWAY_BINARY_ROW(name, in, expression) \
  {"aten::" #name ".out", typed<binary<Binary_##name, In::in>>, Sharing::kEach},
#define SLIPWAY_BINARY_ROWS(name, in, expression)                                       \
  {"aten::" #name ".Scalar_out", typed<binary<Binary_##name, In::in>>, Sharing::kEach}, \
      {"aten::" #name ".Tensor_out", typed<binary<Binary_##name, In::in>>, Sharing::kEach},
constexpr KernelTable kBinaryKernels = {
    SLIPWAY_OPS_OF_TENSORS(SLIPWAY_BINARY_ROW) SLIPWAY_OPS_WITH_NUMBERS(SLIPWAY_BINARY_ROWS)  // with commas
    {"aten::add.Scalar_out", typed<add<1>>, Sharing::kEach},
    {"aten::add.out", typed<add<1>>, Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_Scalar_out", typed<binary<Binary_left_shift, In::kWhole>>,
     Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_out", typed<binary<Binary_left_shift, In::kWhole>>, Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_Scalar_out", typed<binary<Binary_right_shift, In::kWhole>>,
     Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_out", typed<binary<Binary_right_shift, In::kWhole>>, Sharing::kEach},
    {"aten::div.Scalar_mode_out", typed<div_mode>, Sharing::kEach},
    {"aten::div.Scalar_out", typed<binary<Binary_quotient, In::kFloats>>, Sharing::kEach},
    {"aten::div.out", typed<binary<Binary_quotient, In::kFloats>>, Sharing::kEach},
    {"aten::div.out_mode", typed<div_mode>, Sharing::kEach},
    {"aten::mul.Scalar_out", typed<binary<Binary_mul>>, Sharing::kEach},
    {"aten::mul.out", typed<binary<Binary_mul>>, Sharing::kEach},
    {"aten::pow.Scalar_out", typed<pow_scalar_tensor>, Sharing::kEach},
    {"aten::pow.Tensor_Scalar_out", typed<pow_tensor_scalar>, Sharing::kEach},
    {"aten::pow.Tensor_Tensor_out", typed<binary<Binary_pow, In::kWide>>, Sharing::kEach},
    {"aten::rsub.Scalar_out", typed<add<-1, true>>, Sharing::kEach},
    {"aten::sub.Scalar_out", typed<add<-1>>, Sharing::kEach},
    {"aten::sub.out", typed<add<-1>>, Sharing::kEach},
};

}  // namespace slipway::lean
