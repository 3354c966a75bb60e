// The groups of kernels; one file of this folder each.
#pragma once

#include <cstddef>

#include "kernel.h"

namespace slipway::lean {

using Group = const KernelEntry* (*)(std::size_t* count);

const KernelEntry* binary_kernels(std::size_t* count);
const KernelEntry* create_kernels(std::size_t* count);
const KernelEntry* index_kernels(std::size_t* count);
const KernelEntry* join_kernels(std::size_t* count);
const KernelEntry* linear_kernels(std::size_t* count);
const KernelEntry* movement_kernels(std::size_t* count);
const KernelEntry* norm_kernels(std::size_t* count);
const KernelEntry* prim_kernels(std::size_t* count);
const KernelEntry* quantized_kernels(std::size_t* count);
const KernelEntry* reduce_kernels(std::size_t* count);
const KernelEntry* select_kernels(std::size_t* count);
const KernelEntry* spatial_kernels(std::size_t* count);
const KernelEntry* unary_kernels(std::size_t* count);

inline constexpr Group kGroups[] = {binary_kernels,    create_kernels,   index_kernels,  join_kernels,
                                    linear_kernels,    movement_kernels, norm_kernels,   prim_kernels,
                                    quantized_kernels, reduce_kernels,   select_kernels, spatial_kernels,
                                    unary_kernels};

// What a group's function returns, for a table of fixed size.
template <std::size_t N>
const KernelEntry* entries_of(const KernelEntry (&table)[N], std::size_t* count) {
  *count = N;
  return table;
}

}  // namespace slipway::lean
