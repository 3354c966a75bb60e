#include "lean/xnnpack/half_functions.h"

#include <arm_neon.h>

#include <cstdint>

#define ON(name) name##_on_neon

namespace slipway::lean::neon {
namespace {

struct Lanes {
  using Type = float32x4_t;
  using Bits = uint32x4_t;
  static constexpr std::size_t kCount = 4;
  static Type widen(const Half* from) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from->bits))); }
  static void narrow(Type x, Half* to) { vst1_u16(&to->bits, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static Type root(Type x) { return vsqrtq_f32(x); }
};

}  // namespace

#include "lean/xnnpack/half_function.h"

}  // namespace slipway::lean::neon
