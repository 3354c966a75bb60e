// The groups of kernels; one file of this folder each.
#pragma once

#include <cstddef>

#include "lean/kernels/kernel.h"

namespace slipway::lean {

using Group = const KernelEntry* (*)(std::size_t* count);

const KernelEntry* activation_kernels(std::size_t* count);
const KernelEntry* binary_kernels(std::size_t* count);
const KernelEntry* compare_kernels(std::size_t* count);
const KernelEntry* concatenation_kernels(std::size_t* count);
const KernelEntry* convolution_kernels(std::size_t* count);
const KernelEntry* copy_kernels(std::size_t* count);
const KernelEntry* distance_kernels(std::size_t* count);
const KernelEntry* distribution_kernels(std::size_t* count);
const KernelEntry* factory_kernels(std::size_t* count);
const KernelEntry* grid_sampler_kernels(std::size_t* count);
const KernelEntry* indexing_kernels(std::size_t* count);
const KernelEntry* linear_algebra_kernels(std::size_t* count);
const KernelEntry* masked_kernels(std::size_t* count);
const KernelEntry* normalization_kernels(std::size_t* count);
const KernelEntry* padding_kernels(std::size_t* count);
const KernelEntry* pooling_kernels(std::size_t* count);
const KernelEntry* prim_kernels(std::size_t* count);
const KernelEntry* quantized_kernels(std::size_t* count);
const KernelEntry* quantized_arithmetic_kernels(std::size_t* count);
const KernelEntry* reduce_kernels(std::size_t* count);
const KernelEntry* scatter_gather_kernels(std::size_t* count);
const KernelEntry* slicing_kernels(std::size_t* count);
const KernelEntry* softmax_kernels(std::size_t* count);
const KernelEntry* sorting_kernels(std::size_t* count);
const KernelEntry* transformation_kernels(std::size_t* count);
const KernelEntry* unary_kernels(std::size_t* count);
const KernelEntry* upsample_kernels(std::size_t* count);
const KernelEntry* view_kernels(std::size_t* count);

inline constexpr Group kGroups[] = {activation_kernels,
                                    binary_kernels,
                                    compare_kernels,
                                    concatenation_kernels,
                                    convolution_kernels,
                                    copy_kernels,
                                    distance_kernels,
                                    distribution_kernels,
                                    factory_kernels,
                                    grid_sampler_kernels,
                                    indexing_kernels,
                                    linear_algebra_kernels,
                                    masked_kernels,
                                    normalization_kernels,
                                    padding_kernels,
                                    pooling_kernels,
                                    prim_kernels,
                                    quantized_kernels,
                                    quantized_arithmetic_kernels,
                                    reduce_kernels,
                                    scatter_gather_kernels,
                                    slicing_kernels,
                                    softmax_kernels,
                                    sorting_kernels,
                                    transformation_kernels,
                                    unary_kernels,
                                    upsample_kernels,
                                    view_kernels};

// What a group's function returns, for a table of fixed size.
template <std::size_t N>
const KernelEntry* entries_of(const KernelEntry (&table)[N], std::size_t* count) {
  *count = N;
  return table;
}

}  // namespace slipway::lean
