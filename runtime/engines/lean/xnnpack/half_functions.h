// Functions of float16 that compute in float32 and round once, in the place of XNNPACK's kernels. Its own are
// off by four steps (tanh), have no subnormal results (sigmoid), make NaN of infinity's and of -0's square
// root, and where they compute in float16 (on Arm) half of the result may be wrong.
#pragma once

#include <cstddef>

#include "lean/xnnpack/tile_set.h"

namespace slipway::lean {

// As XNNPACK calls its kernels of one input.
using HalfFunction = void (*)(std::size_t bytes, const Half* from, Half* to, const void* params);

struct HalfFunctions {
  HalfFunction hardswish;
  HalfFunction sigmoid;
  HalfFunction square_root;
  HalfFunction reciprocal_root;
  HalfFunction tanh;
};

// On 64-bit Arm, and on 64-bit x86 with AVX2, FMA and F16C.
extern const HalfFunctions kHalfFunctions;

}  // namespace slipway::lean
