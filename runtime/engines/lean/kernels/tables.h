// The groups of kernels; one file of this folder each.
#pragma once

#include <cstddef>

#include "lean/kernels/kernel.h"

namespace slipway::lean {

using Group = const KernelEntry* (*)(std::size_t* count);

const KernelEntry* binary_kernels(std::size_t* count);
const KernelEntry* convolution_kernels(std::size_t* count);
const KernelEntry* create_kernels(std::size_t* count);
const KernelEntry* distance_kernels(std::size_t* count);
const KernelEntry* filter_kernels(std::size_t* count);
const KernelEntry* gather_kernels(std::size_t* count);
const KernelEntry* index_kernels(std::size_t* count);
const KernelEntry* join_kernels(std::size_t* count);
const KernelEntry* linear_kernels(std::size_t* count);
const KernelEntry* mixed_kernels(std::size_t* count);
const KernelEntry* movement_kernels(std::size_t* count);
const KernelEntry* norm_kernels(std::size_t* count);
const KernelEntry* pad_kernels(std::size_t* count);
const KernelEntry* pool_kernels(std::size_t* count);
const KernelEntry* prim_kernels(std::size_t* count);
const KernelEntry* quantized_kernels(std::size_t* count);
const KernelEntry* random_kernels(std::size_t* count);
const KernelEntry* reduce_kernels(std::size_t* count);
const KernelEntry* resize_kernels(std::size_t* count);
const KernelEntry* sample_kernels(std::size_t* count);
const KernelEntry* select_kernels(std::size_t* count);
const KernelEntry* unary_kernels(std::size_t* count);

inline constexpr Group kGroups[] = {
    binary_kernels, convolution_kernels, create_kernels, distance_kernels,  filter_kernels,   gather_kernels,
    index_kernels,  join_kernels,        linear_kernels, mixed_kernels,     movement_kernels, norm_kernels,
    pad_kernels,    pool_kernels,        prim_kernels,   quantized_kernels, random_kernels,   reduce_kernels,
    resize_kernels, sample_kernels,      select_kernels, unary_kernels};

// What a group's function returns, for a table of fixed size.
template <std::size_t N>
const KernelEntry* entries_of(const KernelEntry (&table)[N], std::size_t* count) {
  *count = N;
  return table;
}

}  // namespace slipway::lean
