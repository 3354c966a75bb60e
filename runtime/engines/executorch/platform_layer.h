#pragma once

#include <string>

#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// Puts our functions into ExecuTorch's platform layer: its log goes to standard error, errors only, and an
// abort ends in `on_abort` instead of a signal.
void install_platform_layer(AbortHandler on_abort);

// The error messages logged since the last call, oldest first, joined by "; ". Empty when there were none.
std::string take_logged_errors();

// Makes the process's thread pool anew with `count` threads; returns how many it has.
Result<unsigned> reset_thread_pool(unsigned count);

}  // namespace slipway
