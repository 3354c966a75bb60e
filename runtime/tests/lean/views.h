// Tensors as kernels and delegates take them.
#pragma once

#include "lean/data/evalue.h"

// A row-major tensor at `data`, with room for these sizes and no more.
inline slipway::lean::TensorView view_at(slipway::DType dtype, const slipway::Shape& sizes,
                                         std::uint8_t* data) {
  slipway::lean::TensorView view;
  view.dtype = dtype;
  for (const std::int64_t size : sizes) {
    view.sizes[view.rank] = view.bounds[view.rank] = size;
    view.order[view.rank] = view.rank;
    ++view.rank;
  }
  view.data = data;
  view.capacity = view.bytes();
  return view;
}
