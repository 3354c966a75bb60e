// The groups of kernels; one file of this folder each.
#pragma once

#include <cstddef>

#include "kernel.h"

namespace slipway::lean {

using Group = const KernelEntry* (*)(std::size_t* count);

const KernelEntry* movement_kernels(std::size_t* count);

inline constexpr Group kGroups[] = {movement_kernels};

// What a group's function returns, for a table of fixed size.
template <std::size_t N>
const KernelEntry* entries_of(const KernelEntry (&table)[N], std::size_t* count) {
  *count = N;
  return table;
}

}  // namespace slipway::lean
