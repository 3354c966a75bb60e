// The memory that XNNPACK computes in.
#pragma once

#include <xnnpack.h>

namespace slipway::lean {

// What XNNPACK is to allocate with: large blocks in large pages, where the system has those; nullptr where
// its own way is as good.
const xnn_allocator* memory_for_xnnpack();

}  // namespace slipway::lean
