// Images and volumes as kernels compute on them: all elements as one type, in row-major order.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

template <typename T>
constexpr DType dtype_of() {
  return std::is_same_v<T, double>  ? DType::kFloat64
         : std::is_same_v<T, float> ? DType::kFloat32
                                    : DType::kInt64;
}

// The view with its elements as T at `data`, in row-major order.
template <typename T>
TensorView straightened(const TensorView& view, const T* data) {
  TensorView straight = view;
  straight.dtype = dtype_of<T>();
  for (std::uint8_t i = 0; i < view.rank; ++i) {
    straight.order[i] = i;
  }
  // const_cast: who reads only makes an operand of it.
  straight.data = reinterpret_cast<std::uint8_t*>(const_cast<T*>(data));
  return straight;
}

// The tensor's elements as T, in row-major order.
template <typename T>
std::vector<T> elements_of(const TensorView& view) {
  std::vector<T> found(view.count());
  if (found.empty()) {
    return found;
  }
  if (view.contiguous()) {
    load(view.dtype, view.data, 1, found.size(), found.data());
    return found;
  }
  TensorView straight = straightened(view, found.data());
  copy(straight, operand_of(view, straight));
  return found;
}

// [N, C, W], [N, C, H, W] or [N, C, D, H, W]; what is missing has the size 1.
template <typename T>
struct Volume {
  // The tensor's elements.
  explicit Volume(const TensorView& view) : Volume(view, true) {}

  // Of the tensor's shape, filled with 0.
  static Volume zeros(const TensorView& view) { return Volume(view, false); }

  std::int64_t area() const { return sizes[2] * sizes[3] * sizes[4]; }
  std::int64_t at(std::int64_t n, std::int64_t c) const { return (n * sizes[1] + c) * area(); }
  T* plane(std::int64_t n, std::int64_t c) { return values.data() + at(n, c); }
  const T* plane(std::int64_t n, std::int64_t c) const { return values.data() + at(n, c); }

  // Stores the values into `out`, whatever its memory order.
  void put(TensorView& out) const {
    if (!values.empty()) {
      copy(out, operand_of(straightened(out, values.data()), out));
    }
  }

  std::array<std::int64_t, 5> sizes{1, 1, 1, 1, 1};  // batch, channel, depth, row, column
  std::vector<T> values;

 private:
  Volume(const TensorView& view, bool filled) : values(view.count()) {
    for (std::size_t i = 0; i < view.rank; ++i) {
      sizes[i < 2 ? i : i + 5U - view.rank] = view.sizes[i];
    }
    if (filled && !values.empty()) {
      TensorView straight = straightened(view, values.data());
      copy(straight, operand_of(view, straight));
    }
  }
};

// [C, H, W] as [1, C, H, W].
inline TensorView with_batch(const TensorView& view) {
  TensorView image = view;
  if (view.rank == 3) {
    image.rank = 4;
    for (std::size_t i = 3; i > 0; --i) {
      image.sizes[i] = view.sizes[i - 1];
      image.order[i] = static_cast<std::uint8_t>(view.order[i - 1] + 1);
    }
    image.sizes[0] = 1;
    image.order[0] = 0;
  }
  return image;
}

}  // namespace slipway::lean
