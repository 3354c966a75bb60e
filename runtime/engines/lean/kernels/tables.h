// The groups of kernels; one file of this folder each.
#pragma once

#include <cstddef>

#include "lean/kernels/kernel.h"

namespace slipway::lean {

struct KernelTable {
  template <std::size_t N>
  constexpr KernelTable(const KernelEntry (&entries)[N]) : first(entries), count(N) {}
  const KernelEntry* begin() const { return first; }
  const KernelEntry* end() const { return first + count; }

  const KernelEntry* first;
  std::size_t count;
};

KernelTable activation_kernels(), attention_kernels(), binary_kernels(), concatenation_kernels(),
    convolution_kernels(), factory_kernels(), hadamard_kernels(), indexing_kernels(),
    linear_algebra_kernels(), masked_kernels(), normalization_kernels(), pooling_kernels(), prim_kernels(),
    quantized_kernels(), reduce_kernels(), scatter_gather_kernels(), sorting_kernels(),
    transformation_kernels(), unary_kernels(), upsample_kernels(), view_kernels();

inline constexpr KernelTable (*kGroups[])() = {
    activation_kernels,     attention_kernels,     binary_kernels,
    concatenation_kernels,  convolution_kernels,   factory_kernels,
    hadamard_kernels,       indexing_kernels,      linear_algebra_kernels,
    masked_kernels,         normalization_kernels, pooling_kernels,
    prim_kernels,           quantized_kernels,     reduce_kernels,
    scatter_gather_kernels, sorting_kernels,       transformation_kernels,
    unary_kernels,          upsample_kernels,      view_kernels};

}  // namespace slipway::lean
