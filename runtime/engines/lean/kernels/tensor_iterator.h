// Iterates over tensors together: broadcast, in any memory order, in rows as long as they can be.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lean/kernels/elements.h"
#include "lean/method/evalue.h"
#include "slipway/status.h"

namespace slipway::lean {

// A tensor as seen from the shape it is broadcast to: steps in elements along each dimension of that shape.
struct Operand {
  const std::uint8_t* data = nullptr;
  DType dtype = DType::kUnknown;
  std::array<std::int64_t, kMostDims> steps{};
};

struct Number;

// What a kernel answers when its arguments do not go together.
Status mismatch(std::string what);

// The whole of `in`, steps along its own dimensions.
Operand whole(const TensorView& in);

// The shape that tensors of these shapes are broadcast to. Fails when they do not go together.
Status broadcast_shape(const TensorView& a, const TensorView& b, Shape* shape);
// `in` seen from `out`, whose shape it broadcasts to (broadcast_shape has seen to it).
Operand operand_of(const TensorView& in, const TensorView& out);

namespace detail {
// The dimensions of `out` merged where all operands allow, outermost first.
struct TensorIterator {
  std::size_t rank = 0;
  std::array<std::int64_t, kMostDims> sizes{};
  std::array<std::int64_t, kMostDims> out_steps{};
  std::array<std::array<std::int64_t, kMostDims>, 3> steps{};
};
TensorIterator make_iterator(const TensorView& out, const Operand* operands, std::size_t count);
}  // namespace detail

// Calls visit(out, out_step, in, in_steps, length) for every row: `in` points to `N` addresses. Steps are in
// elements.
template <std::size_t N, typename Visit>
void for_each_row(TensorView& out, const std::array<Operand, N>& operands, Visit visit) {
  static_assert(N <= 3);
  if (out.count() == 0) {
    return;
  }
  const detail::TensorIterator iterator = detail::make_iterator(out, operands.data(), N);
  std::array<std::int64_t, kMostDims> position{};
  const std::size_t row = iterator.rank - 1;
  const auto size = static_cast<std::int64_t>(size_of(out.dtype));
  std::array<std::int64_t, N> in_steps{};
  std::array<std::int64_t, N> in_sizes{};
  std::array<const std::uint8_t*, N> in{};
  for (std::size_t k = 0; k < N; ++k) {
    in_steps[k] = iterator.steps[k][row];
    in_sizes[k] = static_cast<std::int64_t>(size_of(operands[k].dtype));
    in[k] = operands[k].data;
  }
  std::uint8_t* to = out.data;
  for (;;) {
    visit(to, iterator.out_steps[row], in, in_steps, static_cast<std::size_t>(iterator.sizes[row]));
    std::size_t d = row;
    for (; d > 0; --d) {
      // To the next row; behind the last one of a dimension back to its first.
      const bool again = ++position[d - 1] == iterator.sizes[d - 1];
      const std::int64_t moved = again ? 1 - iterator.sizes[d - 1] : 1;
      to += moved * iterator.out_steps[d - 1] * size;
      for (std::size_t k = 0; k < N; ++k) {
        in[k] += moved * iterator.steps[k][d - 1] * in_sizes[k];
      }
      if (!again) {
        break;
      }
      position[d - 1] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

// Elements converted at once.
inline constexpr std::size_t kBlock = 256;

// out = f(operands), element by element, computed in T. `f` takes N arrays, the result and a length. Rows
// that hold T's one after the other are given to it as they lie, others a block at a time.
template <typename T, std::size_t N, typename F>
void map(TensorView& out, const std::array<Operand, N>& operands, F f) {
  T blocks[N][kBlock];
  T result[kBlock];
  const auto out_size = static_cast<std::int64_t>(size_of(out.dtype));
  for_each_row(
      out, operands,
      [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
        const bool there = out.dtype == dtype_of<T>() && to_step == 1;
        bool all = there;
        std::array<bool, N> lies{};
        const T* inputs[N];
        for (std::size_t k = 0; k < N; ++k) {
          lies[k] = operands[k].dtype == dtype_of<T>() && steps[k] == 1;
          all = all && lies[k];
          inputs[k] = lies[k] ? reinterpret_cast<const T*>(from[k]) : blocks[k];
          if (!lies[k] && steps[k] == 0) {
            load(operands[k].dtype, from[k], 0, length < kBlock ? length : kBlock, blocks[k]);
          }
        }
        const std::size_t most = all ? length : kBlock;
        for (std::size_t done = 0; done < length; done += most) {
          const std::size_t count = length - done < most ? length - done : most;
          const auto at = static_cast<std::int64_t>(done);
          for (std::size_t k = 0; k < N; ++k) {
            if (lies[k]) {
              inputs[k] = reinterpret_cast<const T*>(from[k]) + done;
            } else if (steps[k] != 0) {
              const auto in_size = static_cast<std::int64_t>(size_of(operands[k].dtype));
              load(operands[k].dtype, from[k] + at * steps[k] * in_size, steps[k], count, blocks[k]);
            }
          }
          f(inputs, there ? reinterpret_cast<T*>(to) + done : result, count);
          if (!there) {
            store(out.dtype, result, count, to + at * to_step * out_size, to_step);
          }
        }
      });
}

// Calls f with a value of the type that `domain` stands for: f(std::int64_t{}), f(float{}) or f(double{}).
template <typename F>
auto in_domain(Domain domain, F f) {
  switch (domain) {
    case Domain::kInt:
      return f(std::int64_t{});
    case Domain::kFloat:
      return f(float{});
    default:
      return f(double{});
  }
}

// The same for what is computed in floats whatever comes in: an integer's sine is a float.
inline Domain floating(DType dtype) {
  return dtype == DType::kFloat64 ? Domain::kDouble : Domain::kFloat;
}
template <typename F>
auto in_floats(DType dtype, F f) {
  return dtype == DType::kFloat64 ? f(double{}) : f(float{});
}

// out = in, element by element, where `in` has steps for each of out's dimensions. Converts when the element
// types differ.
void copy(TensorView& out, const Operand& in);
// Writes `number`, converted, to every element.
void fill(TensorView& out, const Number& number);

// A dimension counted from the end when it is negative. Fails when there is no such dimension.
Status wrap_dim(std::int64_t dim, std::size_t rank, std::size_t* found);

}  // namespace slipway::lean
