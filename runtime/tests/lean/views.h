// Tensors as kernels and delegates take them.
#pragma once

#include <pthreadpool.h>

#include <numeric>

#include "check.h"
#include "lean/data/evalue.h"
#include "lean/kernels/elements.h"
#include "lean/kernels/kernel.h"

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

namespace slipway::lean {
// A tensor with memory of its own, whose elements are given as doubles.
struct OwnedTensor {
  std::vector<std::uint8_t> bytes;
  TensorView view;

  OwnedTensor(const Shape& shape, DType dtype, const std::vector<double>& values = {})
      : view(view_at(dtype, shape, nullptr)) {
    bytes.resize(view.bytes() + 16);
    view.data = bytes.data();
    if (!values.empty()) {
      store(dtype, values.data(), values.size(), view.data, 1);
    }
  }
  std::vector<double> values() const {
    std::vector<double> found(view.count());
    load(view.dtype, bytes.data(), 1, found.size(), found.data());
    return found;
  }
};

// Numbers that look like chance, from -1 to 1.
inline std::vector<double> pseudo_numbers(std::size_t count, std::uint32_t seed) {
  std::vector<double> found(count);
  std::uint32_t state = seed * 2654435761U + 1;
  for (double& value : found) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<double>(static_cast<std::int32_t>(state)) / 2147483648.0;
  }
  return found;
}

inline Status call_kernel(const char* name, std::vector<EValue> values, pthreadpool_t threads = nullptr) {
  std::vector<std::int32_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  Scratch scratch;
  scratch.threads = threads;
  Arguments arguments(&values, indices.data(), indices.size(), &scratch);
  const KernelEntry* entry = find_kernel(name);
  CHECK(entry != nullptr && entry->arguments == values.size());
  const Status done = entry->function(arguments);
  return arguments.fault().ok() ? done : arguments.fault();
}
}  // namespace slipway::lean
