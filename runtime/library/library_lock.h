#pragma once

#include <shared_mutex>

namespace slipway {

// XNNPACK's tables of kernels, which all programs of a process share. Alone: who changes them for a moment,
// while layers are made. Shared: who may read them, which is where an execution chooses kernels anew.
std::shared_mutex& kernel_tables();

}  // namespace slipway
