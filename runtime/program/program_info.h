#pragma once

#include <string>

#include "program_file.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// What a .pte file declares, read from its own tables; the file is checked throughout before
// (program_file.h).
Result<ProgramInfo> read_program_info(const std::string& path);

// What one of its methods declares.
MethodInfo method_info(const pte::ExecutionPlan& plan);

}  // namespace slipway
