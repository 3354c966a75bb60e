#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include "slipway/tensor.h"

namespace slipway {

// Our element type for the runtime's; kUnknown for those without a file form (quantized, sub-byte, complex
// halves).
DType to_dtype(executorch::aten::ScalarType type);
// The reverse; Undefined for kUnknown.
executorch::aten::ScalarType to_scalar_type(DType dtype);

}  // namespace slipway
