#pragma once

#include <set>
#include <string>

#include "program_file.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// What a .pte file declares, read from its own tables; the file is checked throughout before
// (program_file.h).
Result<ProgramInfo> read_program_info(const std::string& path);

// The name that kernels go by: "aten::add.out", "aten::relu" without overload.
std::string registered_name(const pte::Operator& op);

// Operators that a method calls with tensors of types without a file form, or complex: "aten::abs.out of
// complex64".
std::set<std::string> operators_of_other_types(const pte::ExecutionPlan& plan);

// What one of its methods declares.
MethodInfo method_info(const pte::ExecutionPlan& plan);

}  // namespace slipway
