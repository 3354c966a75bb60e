// The order in which a product's tiles are computed: weights that were brought near are used for many rows.
#pragma once

#include <xnnpack.h>

#include <cstddef>

namespace slipway::lean {

// For a runtime that was given its shapes. XNNPACK reads all packed weights for each tile of rows; with our
// kernels a panel of them is read once for as many rows as stay in a core's second cache, and on 64-bit x86
// with XNNPACK's, too, where there are many weights. `threads`: 1 for none but the caller's.
void set_blocks(xnn_runtime_t runtime, std::size_t threads);

}  // namespace slipway::lean
