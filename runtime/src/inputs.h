#pragma once

#include <vector>

#include "options.h"
#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway {

// The method's inputs: the .npy files of the command line, else ones in the shapes of the command line, else
// ones in the shapes the method declares (and what it was exported with for int, double and bool values).
// Everything is checked against the declaration: kInput names expected and given. `note` receives a sentence
// for the user when inputs were made up.
Result<std::vector<Tensor>> prepare_inputs(const Options& options, const MethodInfo& method,
                                           std::string* note);

// Whether a tensor may be given for `spec`: dtype equal, shape equal, or of the same rank and nowhere above
// the bound when the shape is dynamic.
Status check_input(const ValueSpec& spec, std::size_t index, DType dtype, const Shape& shape);

}  // namespace slipway
