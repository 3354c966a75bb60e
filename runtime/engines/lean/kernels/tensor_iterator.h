// Iterates over tensors together: broadcast, in any memory order, in rows as long as they can be.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "lean/data/evalue.h"
#include "lean/kernels/elements.h"
#include "lean/kernels/kernel.h"
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
// Gives `out` that shape.
Status resize_to_both(const TensorView& a, const TensorView& b, TensorView* out);
// A tensor of that shape, without type or memory.
TensorView shaped(const Shape& shape);
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
// Joins short rows to long ones where the operands that do not follow begin anew with every row. Returns the
// short rows' length, 0 if they stay as they are; sets begins[k] for such operands.
std::size_t join_rows(TensorIterator* iterator, std::size_t count, bool* begins);

template <std::size_t N, typename Visit>
void visit_rows(const TensorIterator& iterator, TensorView& out, const std::array<Operand, N>& operands,
                Visit visit) {
  static_assert(N <= 3);
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
}  // namespace detail

// Calls visit(out, out_step, in, in_steps, length) for every row: `in` points to `N` addresses. Steps are in
// elements.
template <std::size_t N, typename Visit>
void for_each_row(TensorView& out, const std::array<Operand, N>& operands, Visit visit) {
  if (out.count() != 0) {
    detail::visit_rows(detail::make_iterator(out, operands.data(), N), out, operands, visit);
  }
}

// Elements converted at once.
inline constexpr std::size_t kBlock = 256;

// Computes `count` elements of `result` from as many of each input; `context` is whatever else it needs.
template <typename T>
using Loop = void (*)(const void* context, const T* const* inputs, T* result, std::size_t count);

// out = loop(operands), element by element, computed in T (int64_t, float or double). Rows that hold T's one
// after the other are given to the loop as they lie, others a block at a time. The loop is called, not
// compiled in: what is around it is in the program once for all operators.
template <typename T, std::size_t N>
void map_with(TensorView& out, const std::array<Operand, N>& operands, Loop<T> loop, const void* context);

// The same with a function object, which is copied before each call so that its members need not be read
// again.
template <typename T, std::size_t N, typename F>
void map(TensorView& out, const std::array<Operand, N>& operands, const F& f) {
  static_assert(std::is_trivially_copyable_v<F>);
  map_with<T>(
      out, operands,
      [](const void* context, const T* const* inputs, T* result, std::size_t count) {
        const F own = *static_cast<const F*>(context);
        own(inputs, result, count);
      },
      &f);
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

// The part of `view` that holds `length` elements of dimension `dim` from `start` on. Parts of other memory
// orders keep their order: steps are the whole tensor's, so the result may be read and written, not resized.
struct Part {
  Operand operand;
  Shape shape;
};

Part part_of(const TensorView& view, std::size_t dim, std::int64_t start, std::int64_t length);

// Writes `in` into the part of `out` that `target` describes: in runs, or one by one and converted where the
// types differ.
void copy_into(const Part& target, const Operand& in);

// Moves the operand's first element ahead by so many elements.
void advance(Operand* operand, std::int64_t elements);

// Gives `out` this shape and copies the operand, which has steps for each of its dimensions.
Status copy_as(TensorView& out, const Shape& shape, const Operand& operand);

// Operators that compute each element on its own.

// An operator's loops, one for each type that is computed in; nullptr for a type that it never is computed
// in.
struct Loops {
  Loop<std::int64_t> whole = nullptr;
  Loop<float> single = nullptr;
  Loop<double> twice = nullptr;
  // Of integers that need not be widened, all of this type.
  void (*narrow)(DType dtype, const void* context, const void* const* inputs, void* result,
                 std::size_t count) = nullptr;
};

// Calls f with a value of the type, if it is one of integers below 64 bits, signed or of bytes.
template <typename F>
void in_narrow(DType dtype, F f) {
  switch (dtype) {
    case DType::kUInt8:
      return f(std::uint8_t{});
    case DType::kInt8:
      return f(std::int8_t{});
    case DType::kInt16:
      return f(std::int16_t{});
    case DType::kInt32:
      return f(std::int32_t{});
    default:
      return;
  }
}

// out = loop(a, b), which are broadcast, computed in `domain`.
Status map_binary(const TensorView& a, const TensorView& b, TensorView& out, Domain domain,
                  const Loops& loops, const void* context);
// The same when b has one element, which `context` has: out = loop(a).
Status map_by_one(const TensorView& a, const TensorView& b, TensorView& out, Domain domain,
                  const Loops& loops, const void* context);
// out = loop(in).
Status map_tensor(const TensorView& in, TensorView& out, Domain domain, const Loops& loops,
                  const void* context);

// f(element) of type T. The function is copied: what it keeps need not be read again for each element.
template <typename F, typename T>
void unary_loop(const void* context, const T* const* inputs, T* result, std::size_t count) {
  const F f = *static_cast<const F*>(context);
  const T* in = inputs[0];
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = f(in[i]);
  }
}

// out = f(in), computed in `domain`.
template <typename F>
Status apply_unary(const TensorView& in, TensorView& out, Domain domain, const F& f) {
  return map_tensor(in, out, domain,
                    {unary_loop<F, std::int64_t>, unary_loop<F, float>, unary_loop<F, double>}, &f);
}

// The same for what is computed in floats, whatever the argument's type.
template <typename F>
Status apply_real(const TensorView& in, TensorView& out, const F& f) {
  return map_tensor(in, out, floating(in.dtype), {nullptr, unary_loop<F, float>, unary_loop<F, double>}, &f);
}

}  // namespace slipway::lean
