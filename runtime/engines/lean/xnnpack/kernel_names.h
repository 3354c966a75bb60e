// Which kernel XNNPACK chose for each of a graph's layers, on this processor and for this number of rows.
#pragma once

#include <xnnpack.h>

#include <vector>

#include "slipway/engine.h"

namespace slipway::lean {

// One entry a matrix product, linear layer or convolution, in the order in which they run. The runtime must
// have been given its shapes: they decide, too.
std::vector<KernelUse> kernels_of(xnn_runtime_t runtime);

}  // namespace slipway::lean
