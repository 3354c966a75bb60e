#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <cstddef>

#include "program_generated.h"
#include "slipway/tensor.h"

namespace slipway {

// Our element type for ExecuTorch's; kUnknown for those without a file form (quantized, complex, sub-byte).
DType to_dtype(executorch::aten::ScalarType type);
DType to_dtype(pte::ScalarType type);
// The reverse; Undefined for kUnknown.
executorch::aten::ScalarType to_scalar_type(DType dtype);

// Bytes an element takes, also of the types without a file form; 0 for a type the schema does not have.
std::size_t element_size(pte::ScalarType type);

}  // namespace slipway
