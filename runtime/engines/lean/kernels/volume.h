// Images and volumes as kernels compute on them: all elements as one type, in row-major order.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

// The view with its elements as T at `data`, in row-major order.
template <typename T>
TensorView straightened(const TensorView& view, const T* data) {
  // const_cast: who reads only makes an operand of it.
  TensorView straight = view.in_rows(reinterpret_cast<std::uint8_t*>(const_cast<T*>(data)));
  straight.dtype = dtype_of<T>();
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

// Elements as T's in row-major order: where a tensor has them so already, or room of its own.
template <typename T>
class Values {
 public:
  // Of a tensor; to be read.
  explicit Values(const TensorView& view) : count_(view.count()), data_(nullptr) {
    if (view.contiguous() && view.dtype == dtype_of<T>()) {
      // const_cast: who reads never writes to it.
      data_ = const_cast<T*>(view.as<T>());
      return;
    }
    own_ = elements_of<T>(view);
    data_ = own_.data();
  }
  // For `out`; in its own memory if it holds T's in row-major order and none of `read` lies there, else
  // zeros.
  Values(TensorView& out, std::initializer_list<const Values*> read) : count_(out.count()), data_(nullptr) {
    bool there = out.contiguous() && out.dtype == dtype_of<T>();
    for (const Values* one : read) {
      there = there && (one->end() <= out.data || one->begin() >= out.data + out.bytes());
    }
    if (!there) {
      own_.resize(count_);
    }
    data_ = there ? out.as<T>() : own_.data();
  }
  // Zeros, as many as the tensor's elements.
  static Values zeros(const TensorView& view) { return Values(view.count()); }
  Values(Values&&) noexcept = default;  // a vector that is moved keeps its memory
  Values& operator=(Values&&) noexcept = default;
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;
  ~Values() = default;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }

  // Stores the values into `out`, whatever its memory order and element type.
  void put(TensorView& out) const {
    if (count_ != 0 && reinterpret_cast<const std::uint8_t*>(data_) != out.data) {
      copy(out, operand_of(straightened(out, data_), out));
    }
  }

 private:
  explicit Values(std::size_t count) : count_(count), own_(count), data_(own_.data()) {}
  const std::uint8_t* begin() const { return reinterpret_cast<const std::uint8_t*>(data_); }
  const std::uint8_t* end() const { return reinterpret_cast<const std::uint8_t*>(data_ + count_); }

  std::size_t count_;
  std::vector<T> own_;
  T* data_;
};

// [N, C, W], [N, C, H, W] or [N, C, D, H, W]; what is missing has the size 1.
template <typename T>
struct Volume {
  // The tensor's elements, to be read.
  explicit Volume(const TensorView& view) : Volume(view, Values<T>(view)) {}

  // Of the tensor's shape, filled with 0.
  static Volume zeros(const TensorView& view) { return Volume(view, Values<T>::zeros(view)); }

  // Of the tensor's shape, for results that are all written; none of `read` is where they are.
  static Volume results(TensorView& out, std::initializer_list<const Values<T>*> read) {
    return Volume(out, Values<T>(out, read));
  }

  std::int64_t area() const { return sizes[2] * sizes[3] * sizes[4]; }
  std::int64_t planes() const { return sizes[0] * sizes[1]; }  // plane(0, i) is the one at i of all
  std::int64_t at(std::int64_t n, std::int64_t c) const { return (n * sizes[1] + c) * area(); }
  T* plane(std::int64_t n, std::int64_t c) { return values.data() + at(n, c); }
  const T* plane(std::int64_t n, std::int64_t c) const { return values.data() + at(n, c); }

  // Stores the values into `out`, whatever its memory order.
  void put(TensorView& out) const { values.put(out); }

  std::array<std::int64_t, 5> sizes{1, 1, 1, 1, 1};  // batch, channel, depth, row, column
  Values<T> values;

 private:
  Volume(const TensorView& view, Values<T>&& held) : values(std::move(held)) {
    for (std::size_t i = 0; i < view.rank; ++i) {
      sizes[i < 2 ? i : i + 5U - view.rank] = view.sizes[i];
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

// The element at an offset.
inline std::uint8_t* at(const TensorView& view, std::int64_t offset) {
  return view.data + offset * static_cast<std::int64_t>(size_of(view.dtype));
}

}  // namespace slipway::lean
