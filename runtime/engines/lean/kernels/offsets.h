// Offsets of elements: for kernels that look them up one by one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

// All elements as integers, in logical row-major order.
inline std::vector<std::int64_t> integers_of(const TensorView& view) {
  std::vector<std::int64_t> found(view.count());
  TensorView straight = view;
  straight.dtype = DType::kInt64;
  for (std::uint8_t i = 0; i < view.rank; ++i) {
    straight.order[i] = i;
  }
  straight.data = reinterpret_cast<std::uint8_t*>(found.data());
  if (!found.empty()) {
    copy(straight, operand_of(view, straight));
  }
  return found;
}

// Where a logical row-major number lies: its offset in elements.
inline std::int64_t offset_of(std::size_t number, const Shape& shape,
                              const std::array<std::int64_t, kMostDims>& steps) {
  std::int64_t offset = 0;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[d]);
    offset += static_cast<std::int64_t>(number % size) * steps[d];
    number /= size;
  }
  return offset;
}

// The elements of a shape one after the other, in row-major order, and where each lies in N tensors.
template <std::size_t N>
class Steps {
 public:
  using Strides = std::array<std::int64_t, kMostDims>;
  Steps(const Shape& shape, const std::array<const Strides*, N>& strides) : shape_(shape) {
    for (std::size_t k = 0; k < N; ++k) {
      strides_[k] = *strides[k];
    }
  }

  // Behind the last element stands the first again.
  void next() {
    for (std::size_t d = shape_.size(); d-- > 0;) {
      const bool again = ++position_[d] == shape_[d];
      for (std::size_t k = 0; k < N; ++k) {
        offsets[k] += (again ? 1 - shape_[d] : 1) * strides_[k][d];
      }
      if (!again) {
        return;
      }
      position_[d] = 0;
    }
  }

  std::array<std::int64_t, N> offsets{};

 private:
  const Shape& shape_;
  std::array<Strides, N> strides_{};
  Strides position_{};
};

inline std::uint8_t* at(const TensorView& view, std::int64_t offset) {
  return view.data + offset * static_cast<std::int64_t>(size_of(view.dtype));
}

}  // namespace slipway::lean
