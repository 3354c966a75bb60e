// What XNNPACK remembers of shapes that it had before.
#pragma once

#include <xnnpack.h>

namespace slipway::lean {

// Before a graph is reshaped for other shapes: its memory is planned anew. XNNPACK keeps a plan until a value
// becomes larger than it ever was, though values that share memory under the old shapes may not do so under
// the new ones, and rows quantized by themselves may be more in fewer bytes.
void forget_plan(xnn_runtime_t runtime);

}  // namespace slipway::lean
