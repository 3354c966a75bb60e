// Whether this runner has what a method asks for.
#pragma once

#include "runner/options.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// kMissingBackend, kMissingOperator, or kFile for weights that nobody gave; all of what is missing is named.
Status check_offers(const Options& options, const MethodInfo& method, const Capabilities& capabilities);

}  // namespace slipway
