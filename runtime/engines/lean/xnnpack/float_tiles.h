// Our own kernels for products in float32 on x86: every number of rows and columns that the registers hold.
// XNNPACK has one shape for each instruction set (7x32 with AVX-512), computes 8 columns as 32 with it, and
// reads the packed weights once for every seven rows.
#pragma once

#include <cstddef>

#include "lean/xnnpack/tile_set.h"

namespace slipway::lean {

// The kernels that this processor can run, widest vectors first; nullptr where we have none.
const TileSet* float_tiles();

// Those for float16: nullptr also where XNNPACK's are twice as fast, because they compute in half precision.
const TileSet* half_tiles();

namespace avx512f {
extern const TileSet kTiles;
extern const WinogradKernels kWinograd;
}  // namespace avx512f
namespace avx2 {
extern const TileSet kTiles;
extern const WinogradKernels kWinograd;
}  // namespace avx2

}  // namespace slipway::lean
