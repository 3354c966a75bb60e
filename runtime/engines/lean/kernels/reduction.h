// Visiting the elements that a reduction makes one of, and the lines along a dimension.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

// The elements behind one element of a reduction's output, in row-major order.
template <typename T>
class Line {
 public:
  Line(const TensorView& in, const std::uint8_t* data, const std::vector<std::int64_t>& sizes,
       const std::vector<std::int64_t>& steps)
      : in_(in), data_(data), sizes_(sizes), steps_(steps) {}

  std::size_t count() const {
    std::size_t total = 1;
    for (const std::int64_t size : sizes_) {
      total *= static_cast<std::size_t>(size);
    }
    return total;
  }

  // There must be one.
  T first() const {
    T value{};
    load(in_.dtype, data_, 1, 1, &value);
    return value;
  }

  template <typename F>
  void each(F f) const {
    if (count() == 0) {
      return;
    }
    const std::size_t rank = sizes_.size();
    const std::int64_t row = rank == 0 ? 1 : sizes_[rank - 1];
    const std::int64_t step = rank == 0 ? 1 : steps_[rank - 1];
    const auto size = static_cast<std::int64_t>(size_of(in_.dtype));
    std::array<std::int64_t, kMostDims> position{};
    T block[kBlock];
    for (;;) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d + 1 < rank; ++d) {
        at += position[d] * steps_[d];
      }
      for (std::int64_t done = 0; done < row; done += static_cast<std::int64_t>(kBlock)) {
        const std::int64_t left = row - done;
        const std::size_t count =
            left < static_cast<std::int64_t>(kBlock) ? static_cast<std::size_t>(left) : kBlock;
        load(in_.dtype, data_ + (at + done * step) * size, step, count, block);
        for (std::size_t i = 0; i < count; ++i) {
          f(block[i]);
        }
      }
      std::size_t d = rank == 0 ? 0 : rank - 1;
      while (d > 0 && ++position[d - 1] == sizes_[d - 1]) {
        position[--d] = 0;
      }
      if (d == 0) {
        return;
      }
    }
  }

 private:
  const TensorView& in_;
  const std::uint8_t* data_;
  const std::vector<std::int64_t>& sizes_;
  const std::vector<std::int64_t>& steps_;
};

class Reduction {
 public:
  // Over `dims` of `in`, all of them when there are none; gives `out` its shape.
  Status plan(const TensorView& in, const std::vector<std::int64_t>& dims, bool keep, TensorView* out);

  // out = f(line) for each element of the output.
  template <typename T, typename F>
  Status each(const TensorView& in, TensorView& out, F f) {
    visit<T>(in, out, [&](const Line<T>& line, std::uint8_t* to) {
      const T value = f(line);
      store(out.dtype, &value, 1, to, 1);
    });
    return {};
  }

  // The same for results that are indices.
  template <typename T, typename F>
  Status each_index(const TensorView& in, TensorView& out, F f) {
    visit<T>(in, out, [&](const Line<T>& line, std::uint8_t* to) {
      const std::int64_t value = f(line);
      store(out.dtype, &value, 1, to, 1);
    });
    return {};
  }

 private:
  template <typename T, typename Visit>
  void visit(const TensorView& in, TensorView& out, Visit visit_one) {
    Operand operand;
    operand.data = in.data;
    operand.dtype = in.dtype;
    operand.steps = kept_;
    const auto in_size = static_cast<std::int64_t>(size_of(in.dtype));
    const auto out_size = static_cast<std::int64_t>(size_of(out.dtype));
    for_each_row(
        out, std::array<Operand, 1>{operand},
        [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
          for (std::size_t i = 0; i < length; ++i) {
            const auto at = static_cast<std::int64_t>(i);
            visit_one(Line<T>(in, from[0] + at * steps[0] * in_size, sizes_, steps_),
                      to + at * to_step * out_size);
          }
        });
  }

  std::array<std::int64_t, kMostDims> kept_{};  // steps in the input along the output's dimensions
  std::vector<std::int64_t> sizes_;             // of the reduced dimensions
  std::vector<std::int64_t> steps_;
};

// Calls f(line, length) for every line of `in` along `dim`, copied and converted to T, and writes what f made
// of it to the same line of `out`, which has in's shape.
template <typename T, typename F>
Status along(const TensorView& in, TensorView& out, std::int64_t signed_dim, F f) {
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(in.rank == 0 ? Status() : wrap_dim(signed_dim, in.rank, &dim));
  const std::size_t length = in.rank == 0 ? 1 : static_cast<std::size_t>(in.sizes[dim]);
  if (in.count() == 0) {
    return {};
  }
  const auto in_steps = in.strides();
  const auto out_steps = out.strides();
  std::vector<T> line(length);
  std::array<std::int64_t, kMostDims> position{};
  for (;;) {
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (std::size_t d = 0; d < in.rank; ++d) {
      from += position[d] * in_steps[d];
      to += position[d] * out_steps[d];
    }
    const std::int64_t in_step = in.rank == 0 ? 1 : in_steps[dim];
    const std::int64_t out_step = in.rank == 0 ? 1 : out_steps[dim];
    load(in.dtype, in.data + from * static_cast<std::int64_t>(size_of(in.dtype)), in_step, length,
         line.data());
    f(line.data(), length);
    store(out.dtype, line.data(), length, out.data + to * static_cast<std::int64_t>(size_of(out.dtype)),
          out_step);
    std::size_t d = in.rank;
    for (; d > 0; --d) {
      if (d - 1 == dim) {
        continue;
      }
      if (++position[d - 1] < in.sizes[d - 1]) {
        break;
      }
      position[d - 1] = 0;
    }
    if (d == 0) {
      return {};
    }
  }
}

}  // namespace slipway::lean
