#include "lean/kernels/elements.h"

#include <algorithm>
#include <cmath>

namespace slipway::lean {
namespace {

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Bool {
  std::uint8_t byte;
};

// C++ defines no conversion of a float beyond an integer's range, nor of NaN: take the bounds, and 0.
template <typename S, typename T>
S to_integer(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<S>(value);
  } else {
    constexpr T kLimit = static_cast<T>(9223372036854775808.0);  // 2^63
    if (!(value == value)) {
      return 0;
    }
    const std::int64_t wide = value >= kLimit   ? INT64_MAX
                              : value < -kLimit ? INT64_MIN
                                                : static_cast<std::int64_t>(value);
    return static_cast<S>(wide);
  }
}

template <typename T, typename S>
T convert_from(S value) {
  if constexpr (std::is_same_v<S, Half>) {
    return convert_from<T>(half_to_float(value.bits));
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    return convert_from<T>(bfloat16_to_float(value.bits));
  } else if constexpr (std::is_same_v<S, Bool>) {
    return static_cast<T>(value.byte != 0 ? 1 : 0);
  } else if constexpr (std::is_integral_v<T>) {
    return to_integer<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// Without branches: compilers make vectors of it.
[[gnu::always_inline]] inline std::uint16_t rounded_half(float value) {
  const std::uint32_t bits = detail::word_of(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t odd = magnitude >> 13 & 1U;
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xfffU + odd) >> 13;
  // Added to 0.5, a subnormal one leaves the rounded fraction in the lowest bits.
  const std::uint32_t subnormal = detail::word_of(detail::float_of(magnitude) + 0.5F) - 0x3f000000U;
  std::uint32_t half = magnitude < 0x38800000U ? subnormal : normal;
  half = magnitude >= 0x477ff000U ? 0x7c00U : half;  // rounds beyond the largest half
  half = magnitude > 0x7f800000U ? 0x7e00U : half;
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | half);
}

template <typename S, typename T>
S convert_to(T value) {
  if constexpr (std::is_same_v<S, Half>) {
    return {rounded_half(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    return {float_to_bfloat16(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<S, Bool>) {
    return {static_cast<std::uint8_t>(value != 0 ? 1 : 0)};
  } else if constexpr (std::is_integral_v<S>) {
    return to_integer<S>(value);
  } else {
    return static_cast<S>(value);
  }
}

template <typename T, typename S>
void load_loop(const std::uint8_t* from, std::int64_t stride, std::size_t count, T* to) {
  const S* source = reinterpret_cast<const S*>(from);
  if (stride == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = convert_from<T>(source[i]);
    }
    return;
  }
  if (stride == 0) {
    std::fill_n(to, count, convert_from<T>(*source));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = convert_from<T>(source[static_cast<std::int64_t>(i) * stride]);
  }
}

template <typename T, typename S>
void store_loop(const T* from, std::size_t count, std::uint8_t* to, std::int64_t stride) {
  S* target = reinterpret_cast<S*>(to);
  if constexpr (std::is_same_v<T, float> && std::is_integral_v<S> && sizeof(S) < sizeof(std::int64_t)) {
    // By way of 32 bits where these hold all: processors convert several at once.
    bool small = stride == 1;
    for (std::size_t i = 0; i < count; ++i) {
      small &= std::abs(from[i]) < 2147483648.0F;
    }
    for (std::size_t i = 0; small && i < count; ++i) {
      target[i] = static_cast<S>(static_cast<std::int32_t>(from[i]));
    }
    if (small) {
      return;
    }
  }
  if (stride == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      target[i] = convert_to<S>(from[i]);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    target[static_cast<std::int64_t>(i) * stride] = convert_to<S>(from[i]);
  }
}

// f(an element of the type); nothing for types that no kernel computes with.
template <typename F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool:
      return f(Bool{});
    case DType::kUInt8:
      return f(std::uint8_t{});
    case DType::kInt8:
      return f(std::int8_t{});
    case DType::kUInt16:
      return f(std::uint16_t{});
    case DType::kInt16:
      return f(std::int16_t{});
    case DType::kUInt32:
      return f(std::uint32_t{});
    case DType::kInt32:
      return f(std::int32_t{});
    case DType::kUInt64:
      return f(std::uint64_t{});
    case DType::kInt64:
      return f(std::int64_t{});
    case DType::kFloat16:
      return f(Half{});
    case DType::kBFloat16:
      return f(BFloat16{});
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    default:
      return;
  }
}

}  // namespace

std::uint16_t float_to_half(float value) {
  return rounded_half(value);
}

std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = detail::word_of(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return 0x7fc0U;
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

std::int64_t to_int64(double value) {
  return to_integer<std::int64_t>(value);
}

bool is_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

Domain domain_of(DType dtype) {
  return dtype == DType::kFloat64 ? Domain::kDouble : is_floating(dtype) ? Domain::kFloat : Domain::kInt;
}

DType promote(DType a, DType b) {
  if (a == b) {
    return a;
  }
  const auto category = [](DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::kBool ? 0 : 1; };
  if (category(a) != category(b)) {
    return category(a) > category(b) ? a : b;
  }
  const std::size_t size = size_of(a);
  if (size != size_of(b)) {
    return size > size_of(b) ? a : b;
  }
  if (is_floating(a)) {
    return DType::kFloat32;  // float16 with bfloat16
  }
  // Signed with unsigned of the same width: the next wider signed type.
  return size == 1 ? DType::kInt16 : size == 2 ? DType::kInt32 : DType::kInt64;
}

template <typename T>
void load(DType dtype, const std::uint8_t* from, std::int64_t stride, std::size_t count, T* to) {
  with_type(dtype, [=](auto zero) { load_loop<T, decltype(zero)>(from, stride, count, to); });
}

template <typename T>
void store(DType dtype, const T* from, std::size_t count, std::uint8_t* to, std::int64_t stride) {
  with_type(dtype, [=](auto zero) { store_loop<T, decltype(zero)>(from, count, to, stride); });
}

template void load(DType, const std::uint8_t*, std::int64_t, std::size_t, std::int64_t*);
template void load(DType, const std::uint8_t*, std::int64_t, std::size_t, float*);
template void load(DType, const std::uint8_t*, std::int64_t, std::size_t, double*);
template void store(DType, const std::int64_t*, std::size_t, std::uint8_t*, std::int64_t);
template void store(DType, const float*, std::size_t, std::uint8_t*, std::int64_t);
template void store(DType, const double*, std::size_t, std::uint8_t*, std::int64_t);

}  // namespace slipway::lean
