// Which of XNNPACK's kernels a graph may need, by the types that they compute with. A bundle for some
// programs leaves the others out (`./inv build --ops-from`).
#pragma once

#include <string>
#include <vector>

#include "lean/xnnpack/payload.h"
#include "lean/xnnpack/verify.h"
#include "slipway/status.h"

namespace slipway::lean {

// Sorted, each once, by XNNPACK's names: "xnnpack::f32" for values of float32 in nodes without weights,
// "xnnpack::qd8_f32_qc8w_layers" for layers with weights in 8 bits by channel whose inputs are quantized as
// they come. What a processor computes in another type (float16 in float32) is not named: conanfile.py adds
// it.
std::vector<std::string> kernel_types(const GraphCheck& check);

// The same of all delegates of a method. kFile, or kMissingOperator, for what this runner cannot read.
Result<std::vector<std::string>> kernel_types(const pte::ExecutionPlan& plan, const DataStore& store);

// kMissingOperator, if this runner was linked without some of them. `what` names the delegate.
Status check_linked(const std::vector<std::string>& types, const std::string& what);

// What this runner has, sorted; empty: everything.
std::vector<std::string> linked_kernel_types();

}  // namespace slipway::lean
