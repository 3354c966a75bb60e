#pragma once

#include "slipway/status.h"

namespace slipway {

// Makes the process's thread pool anew with `count` threads; returns how many it has.
Result<unsigned> reset_thread_pool(unsigned count);

}  // namespace slipway
