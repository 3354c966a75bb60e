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

// out = f(a, b), computed for arguments of type `dtype`. What is one number in b is read once, and not copied
// beside every block of a; integers may have more digits than a Number's double.
template <In kIn, typename F>
Status combine(const TensorView& a, Other b, TensorView& out, DType dtype, const F& f) {
  if (b.tensor != nullptr) {
    SLIPWAY_RETURN_IF_ERROR(resize_to_all({&a, b.tensor}, &out));
    if (b.tensor->count() != 1 || !is_floating(b.tensor->dtype) || domain_of(dtype) == Domain::kInt) {
      map<kIn>(out, std::array<Operand, 2>{operand_of(a, out), operand_of(*b.tensor, out)}, dtype, f);
      return {};
    }
    load(b.tensor->dtype, b.tensor->data, 1, 1, &b.number.real);
  } else {
    SLIPWAY_RETURN_IF_ERROR(resize(&out, a.shape()));
  }
  constexpr In kWide = kIn == In::kNarrow ? In::kOwn : kIn;  // a number may need more bits than the tensor
  map<kWide>(out, std::array<Operand, 1>{operand_of(a, out)}, dtype,
             [f, number = b.number](auto x) { return f(x, number.template as<decltype(x)>()); });
  return {};
}

template <typename Op, In kIn = In::kOwn>
Status binary(const TensorView& a, Other b, TensorView& out) {
  return combine<kIn>(a, b, out, promoted(a, b), Op());
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

// a + alpha * b, or a - alpha * b; the other way round with `kSwap`.
template <int kSign, bool kSwap = false>
struct Scaled {
  template <typename T>
  T operator()(T a, T b) const {
    const T factor = static_cast<T>(static_cast<T>(kSign) * alpha.template as<T>());
    return kSwap ? add_scaled(b, factor, a) : add_scaled(a, factor, b);
  }

  Number alpha;
};

template <int kSign, bool kSwap = false>
Status add(const TensorView& a, Other b, Number alpha, TensorView& out) {
  return combine<In::kNarrow>(a, b, out, promoted(a, b), Scaled<kSign, kSwap>{alpha});
}

// aten::div's `str? rounding_mode`; true division, also of integers, without one. A program may name others;
// no arithmetic is known for them.
Status div_mode(const TensorView& a, Other b, const EValue& mode, TensorView& out) {
  const auto* text = std::get_if<std::string_view>(&mode);
  if (text == nullptr) {
    return binary<Quotient, In::kFloats>(a, b, out);
  }
  if (*text == "floor") {
    return binary<FloorDiv>(a, b, out);
  }
  return *text == "trunc" ? binary<TruncDiv>(a, b, out)
                          : mismatch("\"" + std::string(*text) +
                                     "\" is not a way to round a quotient: floor and trunc are");
}

// The number is the base.
Status pow_scalar_tensor(Other base, const TensorView& exponent, TensorView& out) {
  return combine<In::kOwn>(exponent, base, out, promoted(exponent, base),
                           [](auto power, auto number) { return Pow()(number, power); });
}

// A row for a tensor and a number, one for two tensors.
#define SLIPWAY_ROWS(name, tensors, ...)                               \
  {"aten::" name ".Scalar_out", typed<__VA_ARGS__>, Sharing::kEach}, { \
    "aten::" name tensors, typed<__VA_ARGS__>, Sharing::kEach          \
  }

constexpr KernelEntry kBinaryTable[] = {
    SLIPWAY_ROWS("add", ".out", add<1>),
    SLIPWAY_ROWS("bitwise_and", ".Tensor_out", binary<BitAnd, In::kWhole>),
    SLIPWAY_ROWS("bitwise_or", ".Tensor_out", binary<BitOr, In::kWhole>),
    SLIPWAY_ROWS("bitwise_xor", ".Tensor_out", binary<BitXor, In::kWhole>),
    SLIPWAY_ROWS("div", ".out", binary<Quotient, In::kFloats>),
    SLIPWAY_ROWS("eq", ".Tensor_out", binary<Eq>),
    SLIPWAY_ROWS("fmod", ".Tensor_out", binary<Fmod>),
    SLIPWAY_ROWS("ge", ".Tensor_out", binary<Ge>),
    SLIPWAY_ROWS("gt", ".Tensor_out", binary<Gt>),
    SLIPWAY_ROWS("le", ".Tensor_out", binary<Le>),
    SLIPWAY_ROWS("lt", ".Tensor_out", binary<Lt>),
    SLIPWAY_ROWS("mul", ".out", binary<Mul, In::kNarrow>),
    SLIPWAY_ROWS("ne", ".Tensor_out", binary<Ne>),
    SLIPWAY_ROWS("remainder", ".Tensor_out", binary<Remainder>),
    SLIPWAY_ROWS("sub", ".out", add<-1>),
    {"aten::atan2.out", typed<binary<Atan2, In::kFloats>>, Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_Scalar_out", typed<binary<ShiftLeft, In::kWhole>>, Sharing::kEach},
    {"aten::bitwise_left_shift.Tensor_out", typed<binary<ShiftLeft, In::kWhole>>, Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_Scalar_out", typed<binary<ShiftRight, In::kWhole>>, Sharing::kEach},
    {"aten::bitwise_right_shift.Tensor_out", typed<binary<ShiftRight, In::kWhole>>, Sharing::kEach},
    {"aten::div.Scalar_mode_out", typed<div_mode>, Sharing::kEach},
    {"aten::div.out_mode", typed<div_mode>, Sharing::kEach},
    {"aten::floor_divide.out", typed<binary<FloorDiv>>, Sharing::kEach},
    {"aten::logical_and.out", typed<binary<And, In::kFlags>>, Sharing::kEach},
    {"aten::logical_or.out", typed<binary<Or, In::kFlags>>, Sharing::kEach},
    {"aten::logical_xor.out", typed<binary<Xor, In::kFlags>>, Sharing::kEach},
    {"aten::maximum.out", typed<binary<Maximum, In::kNarrow>>, Sharing::kEach},
    {"aten::minimum.out", typed<binary<Minimum, In::kNarrow>>, Sharing::kEach},
    {"aten::pow.Scalar_out", typed<pow_scalar_tensor>, Sharing::kEach},
    {"aten::pow.Tensor_Scalar_out", typed<binary<Pow>>, Sharing::kEach},
    {"aten::pow.Tensor_Tensor_out", typed<binary<Pow>>, Sharing::kEach},
    {"aten::rsub.Scalar_out", typed<add<-1, true>>, Sharing::kEach},
};

}  // namespace

const KernelTable kBinaryKernels = kBinaryTable;

}  // namespace slipway::lean
