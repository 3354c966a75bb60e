// The methods of a program that a command line asks for.
#pragma once

#include <string>
#include <vector>

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// kMissingBackend, kMissingOperator, or kFile for weights that nobody gave; all of what is missing is named.
Status check_offers(const Options& options, const MethodInfo& method, const Capabilities& capabilities);

// kUsage when the program has no such method.
Result<MethodInfo> find_method(const Options& options, const std::string& wanted, const ProgramInfo& program);

// The methods besides the measured one, each once.
std::vector<std::string> also_loaded(const Options& options);

// What all methods that are loaded have planned, against the memory that there is.
Status check_planned(const Options& options, const ProgramInfo& program);

}  // namespace slipway
