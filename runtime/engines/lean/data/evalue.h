// What a method computes with: tensors in memory, numbers, lists.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "slipway/engine.h"
#include "slipway/status.h"
#include "slipway/tensor.h"

namespace slipway::lean {

// The most dimensions a tensor has (program_checks.cpp sees to it).
inline constexpr std::size_t kMostDims = 16;

// A tensor in memory that somebody else owns: an arena, the program, the caller's inputs.
struct TensorView {
  DType dtype = DType::kUnknown;
  std::uint8_t rank = 0;
  Dynamism dynamism = Dynamism::kStatic;
  bool constant = false;
  bool pinned = false;      // two arguments of the call that runs: its sizes stay what the kernel has checked
  std::uint32_t taken = 0;  // the argument of that call which it is, counted from 1
  std::array<std::int64_t, kMostDims> sizes{};   // logical order
  std::array<std::int64_t, kMostDims> bounds{};  // as exported: what sizes may grow to
  std::array<std::uint8_t, kMostDims> order{};   // dimensions as they lie in memory, outermost first
  std::uint8_t* data = nullptr;
  std::size_t capacity = 0;  // bytes at data

  std::size_t count() const;
  std::size_t bytes() const { return count() * size_of(dtype); }
  bool contiguous() const;  // row-major
  bool has_sizes(const std::int64_t* other, std::size_t count) const {
    bool same = count == rank;  // a loop: to call memcmp takes longer
    for (std::size_t i = 0; same && i < count; ++i) {
      same = sizes[i] == other[i];
    }
    return same;
  }
  // Whether their elements, one after the other, have the same places.
  bool lies_as(const TensorView& other) const {
    bool same = other.has_sizes(sizes.data(), rank);
    for (std::size_t i = 0; same && i < rank; ++i) {
      same = order[i] == other.order[i];
    }
    return same;
  }
  // Whether they are the same elements of the same memory.
  bool same_place(const TensorView& other) const {
    return data == other.data && dtype == other.dtype && lies_as(other);
  }
  // The same at `memory`, row-major.
  TensorView in_rows(std::uint8_t* memory) const;
  Shape shape() const { return {sizes.begin(), sizes.begin() + rank}; }
  // Elements between neighbours along each logical dimension.
  std::array<std::int64_t, kMostDims> strides() const;

  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data);
  }
};

// Gives `view`, which is about to be written, new sizes. Fails when its memory or its exported bounds do not
// allow them, and when it is a constant or has no memory.
Status resize(TensorView* view, const std::int64_t* sizes, std::size_t rank);
inline Status resize(TensorView* view, const Shape& shape) {
  return resize(view, shape.data(), shape.size());
}
inline Status resize(TensorView* view, const TensorView& like) {
  return resize(view, like.sizes.data(), like.rank);
}

// A copy of what lies at `view`, row-major.
Tensor tensor_of(const TensorView& view);

// Lists hold indices of values; -1 stands for no tensor.
struct Indices {
  std::vector<std::int32_t> items;
};
struct IntList : Indices {};
struct TensorList : Indices {};
struct DoubleList {
  std::vector<double> items;
};
struct BoolList {
  std::vector<std::uint8_t> items;
};

using EValue = std::variant<std::monostate, std::int64_t, double, bool, std::string_view, TensorView, IntList,
                            DoubleList, BoolList, TensorList>;

}  // namespace slipway::lean
