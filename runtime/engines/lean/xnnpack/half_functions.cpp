// Compiled with the flags of its instruction set: nothing from the standard library's headers but types, and
// names that end with it, which the check of instructions knows.
//
// What is no number stays so: comparisons with it are false.
#include "lean/xnnpack/tile_set.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#define ON(name) name##_on_neon
#else
#include <immintrin.h>
#define ON(name) name##_on_avx2
#endif

namespace slipway::lean {
namespace {

#if defined(__aarch64__)

struct Lanes {
  using Type = float32x4_t;
  using Bits = uint32x4_t;
  static constexpr std::size_t kCount = 4;
  static Type widen(const Half* from) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from->bits))); }
  static void narrow(Type x, Half* to) { vst1_u16(&to->bits, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static Type root(Type x) { return vsqrtq_f32(x); }
};

#else

struct Lanes {
  using Type = __m256;
  using Bits = std::uint32_t __attribute__((vector_size(32)));
  static constexpr std::size_t kCount = 8;
  static Type widen(const Half* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void narrow(Type x, Half* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static Type root(Type x) { return _mm256_sqrt_ps(x); }
};

#endif

#define INLINE inline __attribute__((always_inline))

using Vector = Lanes::Type;
using Bits = Lanes::Bits;

INLINE Vector ON(all)(float value) {
  return Vector{} + value;
}
INLINE Vector ON(at_least)(float least, Vector x) {
  return x < ON(all)(least) ? ON(all)(least) : x;
}
INLINE Vector ON(at_most)(float most, Vector x) {
  return x > ON(all)(most) ? ON(all)(most) : x;
}

struct Tanh {
  // x P(x^2) / Q(x^2), fitted: off by 2^-19 of the result, where a step of halves is 2^-11. From the bound
  // on, no half is nearer than 1.
  static INLINE Vector ON(of)(Vector x) {
    x = ON(at_most)(4.625F, ON(at_least)(-4.625F, x));
    const Vector z = x * x;
    Vector p = 0x1.ba73f2p-10F * z + 0x1.e08534p-4F;
    p = p * z + 1.0F;
    Vector q = 0x1.1d67cap-14F * z + 0x1.30685ap-6F;
    q = q * z + 0x1.cd74e4p-2F;
    q = q * z + 1.0F;
    return x * p / q;
  }
};

struct Sigmoid {
  // e / (1 + e) of e^-|x|, or what that leaves of 1: 1 / (1 + e).
  static INLINE Vector ON(of)(Vector x) {
    const Vector minus = __builtin_bit_cast(Vector, __builtin_bit_cast(Bits, x) | 0x80000000U);
    const Vector z = ON(at_least)(-40.0F, minus);  // below this, halves end
    // z = n ln 2 + r. Added to this number, the lowest bits are n + 127.
    constexpr float kShift = 0x1.8000fep+23F;
    const Vector shifted = z * 0x1.715476p+0F + kShift;
    const Vector power = __builtin_bit_cast(Vector, __builtin_bit_cast(Bits, shifted) << 23);
    const Vector n = shifted - kShift;
    const Vector r = z - n * 0x1.62e43p-1F;
    // e^r = 1 + r + r^2 / 2 + r^3 / 6 + ..., the last two numbers fitted: off by 2^-17.
    Vector p = 0x1.555beap-5F * r + 0x1.570aa2p-3F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    const Vector e = p * power;
    return (x < ON(all)(0.0F) ? e : ON(all)(1.0F)) / (e + 1.0F);
  }
};

struct SquareRoot {
  static INLINE Vector ON(of)(Vector x) { return Lanes::root(x); }
};

struct ReciprocalRoot {
  static INLINE Vector ON(of)(Vector x) { return 1.0F / Lanes::root(x); }
};

struct Hardswish {
  static INLINE Vector ON(of)(Vector x) {
    return x * ON(at_most)(6.0F, ON(at_least)(0.0F, x + 3.0F)) * (1.0F / 6.0F);
  }
};

template <typename Function>
void ON(each)(std::size_t bytes, const Half* from, Half* to, const void*) {
  std::size_t count = bytes / sizeof(Half);
#pragma GCC unroll 1  // two of them at once are no faster
  while (count >= Lanes::kCount) {
    Lanes::narrow(Function::ON(of)(Lanes::widen(from)), to);
    count -= Lanes::kCount;
    from += Lanes::kCount;
    to += Lanes::kCount;
  }
  if (count != 0) {
    Half rest[Lanes::kCount] = {};
    __builtin_memcpy(rest, from, count * sizeof(Half));
    ON(each)<Function>(sizeof(rest), rest, rest, nullptr);
    __builtin_memcpy(to, rest, count * sizeof(Half));
  }
}

#undef INLINE

template <typename Function>
constexpr HalfFunction half_kernel_of() {
  return &ON(each)<Function>;
}

}  // namespace

const HalfFunctions kHalfFunctions = {half_kernel_of<Hardswish>(), half_kernel_of<Sigmoid>(),
                                      half_kernel_of<SquareRoot>(), half_kernel_of<ReciprocalRoot>(),
                                      half_kernel_of<Tanh>()};

}  // namespace slipway::lean
