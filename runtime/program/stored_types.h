#pragma once

#include <cstddef>

#include "program_generated.h"
#include "slipway/tensor.h"

namespace slipway {

// Our element type for a program's; kUnknown for those without a file form (quantized, sub-byte, 8-bit
// floats).
DType to_dtype(pte::ScalarType type);

// Bytes an element takes, also of the types without a file form; 0 for a type the schema does not have.
std::size_t element_size(pte::ScalarType type);

}  // namespace slipway
