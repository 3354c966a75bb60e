#pragma once

#include <string>
#include <vector>

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

// The method's inputs: the .npy files of the command line, else ones in the shapes of the command line, else
// ones in the shapes the method declares (and what it was exported with for int, double and bool values).
// All are checked against the declaration: kInput names expected and given. `note` says what was made up.
Result<std::vector<Tensor>> prepare_inputs(const Options& options, const MethodInfo& method,
                                           std::string* note);

// A tensor of a .npy file; what is wrong with the file is kInput.
Result<Tensor> read_input(const std::string& path);

// Whether a tensor may be given for `spec`: dtype equal, the same rank, every size within its range.
Status check_input(const ValueSpec& spec, std::size_t index, DType dtype, const Shape& shape);

// A failure of execute(), said of the inputs (kInput) where one of them has other sizes than its bounds: a
// .pte does not say which sizes of a dynamic tensor are fixed, so that only the operators can refuse them.
Status blame_inputs(const Status& failure, const MethodInfo& method, const std::vector<Tensor>& inputs);

// kMissingBackend, kMissingOperator, or kFile for weights that nobody gave; all of what is missing is named.
Status check_offers(const Options& options, const MethodInfo& method, const Capabilities& capabilities);

// kUsage when the program has no such method.
Result<MethodInfo> find_method(const Options& options, const std::string& wanted, const ProgramInfo& program);

// The methods besides the measured one, each once.
std::vector<std::string> also_loaded(const Options& options);

// What all methods that are loaded have planned, against the memory that there is.
Status check_planned(const Options& options, const ProgramInfo& program);

}  // namespace slipway
