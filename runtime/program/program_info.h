#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "program_file.h"
#include "program_generated.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

// What a .pte file declares, read from its own tables. First check_program checks the whole file.
Result<ProgramInfo> read_program_info(const std::string& path);

// The name that kernels go by: "aten::add.out", "aten::relu" without overload.
std::string registered_name(const pte::Operator& op);

// Operators that a method calls with complex tensors or without a file form: "aten::abs.out of complex64".
std::set<std::string> operators_of_other_types(const pte::ExecutionPlan& plan);

// What one of its methods declares.
MethodInfo method_info(const pte::ExecutionPlan& plan);

// Our element type; kUnknown for those without a file form (quantized, sub-byte, float8, complex halves).
DType to_dtype(pte::ScalarType type);

// The other way round: a type without a file form for kUnknown and kNone.
pte::ScalarType to_stored(DType dtype);

// Bytes an element takes, also of the types without a file form; 0 for a type the schema does not have.
std::size_t element_size(pte::ScalarType type);

// PyTorch's name of a type, also of those without a file form: "complex64".
std::string name_of(pte::ScalarType type);

// How a tensor's sizes may change.
Dynamism dynamism_of(pte::TensorShapeDynamism dynamism);

// Bytes of a tensor's elements, in the sizes that the file has (its bounds, when they change). Only of a
// tensor that find_fault has seen.
std::uint64_t tensor_bytes(const pte::Tensor& tensor);

}  // namespace slipway
