// What a layer's packed weights depend on besides the weights' bytes.
#pragma once

#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/payload.h"

namespace slipway::lean {

// For all layers of a graph that was built (its values are known to fit their nodes).
PackingForms packing_forms(const XnnPayload& payload);

}  // namespace slipway::lean
