// Iterates over tensors together: broadcast, in any memory order, in rows as long as they can be.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "lean/data/evalue.h"
#include "lean/kernels/elements.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"
#include "lean/kernels/sharing.h"
#include "slipway/status.h"

namespace slipway::lean {

// Elements converted at once.
inline constexpr std::size_t kBlock = 256;

// A tensor as seen from the shape it is broadcast to: steps in elements along each dimension of that shape.
struct Operand {
  const std::uint8_t* data = nullptr;
  DType dtype = DType::kUnknown;
  std::array<std::int64_t, kMostDims> steps{};
};

// What a kernel answers when its arguments do not go together.
Status mismatch(std::string what);

// Leaves the kernel when a tensor could not be given its shape, or there is nothing to compute from or in it.
#define SLIPWAY_RETURN_IF_EMPTY(resized, tensor) \
  do {                                           \
    SLIPWAY_RETURN_IF_ERROR(resized);            \
    if ((tensor).count() == 0) {                 \
      return {};                                 \
    }                                            \
  } while (false)

// The whole of `in`, steps along its own dimensions.
Operand whole(const TensorView& in);

// The shape that tensors of these shapes are broadcast to. Fails when they do not go together.
Result<Shape> broadcast_shape(std::initializer_list<const TensorView*> views);
// Gives `out` that shape.
Status resize_to_all(std::initializer_list<const TensorView*> views, TensorView* out);
// Whether `in` is broadcast to that shape and to no other.
Status goes_into(const TensorView& in, const Shape& shape);
// A tensor of that shape, row-major, without type or memory.
TensorView shaped(const Shape& shape);
// The size that is -1, if there is one, becomes what `count` elements need.
void settle_open_size(Shape* shape, std::size_t count);
// `in` seen from `out`, whose shape it broadcasts to (broadcast_shape has seen to it).
Operand operand_of(const TensorView& in, const TensorView& out);

// The part of `view` that holds `length` elements of dimension `dim` from `start` on. Parts of other memory
// orders keep their order: steps are the whole tensor's, so the result may be read and written, not resized.
struct Part {
  Operand operand;
  Shape shape;
};

Part part_of(const TensorView& view, std::size_t dim, std::int64_t start, std::int64_t length);

// What is written: a tensor, or a part of one.
struct Target {
  Target(const TensorView& view);
  Target(const Part& part);

  Operand operand;
  std::size_t rank;
  const std::int64_t* sizes;
};

namespace detail {
// The dimensions of `out`, merged where all operands allow; at least one.
Axes axes_of(const Target& out, const Operand* operands, std::size_t count);

// const_cast: targets are outputs.
template <std::size_t N, typename Visit>
void visit_rows(const Axes& axes, const Target& out, const std::array<Operand, N>& operands,
                const Visit& visit) {
  static_assert(N <= 3);
  if (axes.empty) {
    return;
  }
  const Axis& row = axes.items[axes.rank - 1];
  std::array<const std::uint8_t*, N> in{};
  std::array<std::int64_t, N> in_steps{};
  std::copy_n(row.steps.begin() + 1, N, in_steps.begin());
  Walk<N + 1> walk(axes, axes.rank - 1);
  do {
    for (std::size_t k = 0; k < N; ++k) {
      in[k] = operands[k].data + walk.offsets[k + 1] * static_cast<std::int64_t>(size_of(operands[k].dtype));
    }
    visit(const_cast<std::uint8_t*>(out.operand.data) +
              walk.offsets[0] * static_cast<std::int64_t>(size_of(out.operand.dtype)),
          row.steps[0], in, in_steps, static_cast<std::size_t>(row.size));
  } while (walk.next());
}

template <std::size_t N, typename Visit>
void share_rows(const Axes& axes, std::size_t rank, const Target& out, const std::array<Operand, N>& operands,
                std::size_t unit, std::size_t cost, const Visit& visit) {
  share_axes(axes, rank, unit, cost, [&](const Axes& part) { visit_rows(part, out, operands, visit); });
}
}  // namespace detail

// Calls visit(out, out_step, in, in_steps, length) for every row, or parts of them that begin at multiples of
// `unit`; side by side where that is worth it, if an element is worth `cost`. Steps are in elements.
template <std::size_t N, typename Visit>
void for_each_row(const Target& out, const std::array<Operand, N>& operands, const Visit& visit,
                  std::size_t unit = kBlock, std::size_t cost = 1) {
  const Axes axes = detail::axes_of(out, operands.data(), N);
  detail::share_rows(axes, axes.rank, out, operands, unit, cost, visit);
}

// Computes `count` elements of `result` from as many of each input; `context` is whatever else it needs.
template <typename T>
using Loop = void (*)(const void* context, const T* const* inputs, T* result, std::size_t count);

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

// out = in, converted where the types differ; `in` has steps for each of out's dimensions.
void copy(const Target& out, const Operand& in);
// Writes `number`, converted, to every element.
void fill(const Target& out, const Number& number);

// A dimension counted from the end when it is negative. Fails when there is no such dimension.
Result<std::size_t> wrap_dim(std::int64_t dim, std::size_t rank);

// Copies `in` to `out`, which has elements, of the same type: places[d][x] is where along dimension d of `in`
// the elements at x come from; a dimension without places is taken whole.
void pick_places(const TensorView& in, std::vector<std::vector<std::int64_t>> places, TensorView& out);

// out = the element of each line at that line's place, an int64. Lines of `in` begin these steps apart along
// out's dimensions, their elements are `along` apart.
void pick_in_lines(const TensorView& in, const std::array<std::int64_t, kMostDims>& steps, std::int64_t along,
                   const TensorView& places, TensorView& out);

// Moves the operand's first element ahead by so many elements.
void advance(Operand* operand, std::int64_t elements);

// Gives `out` this shape and copies the operand, which has steps for each of its dimensions.
Status copy_as(TensorView& out, const Shape& shape, const Operand& operand);

// What an operator computes in.
enum class In : std::uint8_t {
  kOwn,     // its arguments' type
  kWide,    // the same; narrow integers in 64 bits, so that there is less code
  kFlags,   // the same; of flags, which masks of attention are, as bytes
  kFloats,  // floats, whatever its arguments are: an integer's sine is a float
  kSingle,  // float
  kWhole,   // integers
};

// An operator's loops, one for each type that it may be computed in.
struct Loops {
  Loop<std::int64_t> whole = nullptr;
  Loop<float> single = nullptr;
  Loop<double> twice = nullptr;
  // Of integers below 64 bits, or of flags, all of this type.
  void (*narrow)(DType dtype, const void* context, const void* const* inputs, void* result,
                 std::size_t count) = nullptr;
  bool flags = false;  // narrow is for these alone
};

// Calls f with a value of the type, if it is one of integers below 64 bits, signed or of bytes, or of flags.
template <typename F>
void in_narrow(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool:
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

// Whether an integer's type holds the number.
bool fits(const Number& number, DType dtype);

// out = loop(operands), element by element. Rows that hold what is computed in, one element after the other,
// are given to the loop as they lie, others a block at a time. The loop is called, not compiled in: what is
// around it is in the program once for all operators.
template <std::size_t N>
void map_with(const Target& out, const std::array<Operand, N>& operands, Domain domain, const Loops& loops,
              const void* context);

// The same of tensors that are broadcast to `out`. Those that lie as it does are one row, and few elements of
// such take little longer than the call.
template <std::size_t N>
using Views = std::array<const TensorView*, N>;
template <std::size_t N>
void map_with(TensorView& out, const Views<N>& views, Domain domain, const Loops& loops, const void* context);

namespace detail {
// The function is copied: what it keeps need not be read again for each element.
template <typename F, typename T, std::size_t N>
void loop_of(const void* context, const T* const* inputs, T* result, std::size_t count) {
  const F f = *static_cast<const F*>(context);
  const T* a = inputs[0];
  const T* b = inputs[N > 1 ? 1 : 0];
  const T* c = inputs[N > 2 ? 2 : 0];
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (N == 1) {
      result[i] = static_cast<T>(f(a[i]));
    } else if constexpr (N == 2) {
      result[i] = static_cast<T>(f(a[i], b[i]));
    } else {
      result[i] = static_cast<T>(f(a[i], b[i], c[i]));
    }
  }
}
template <typename F, std::size_t N>
void narrow_loop(DType dtype, const void* context, const void* const* inputs, void* result,
                 std::size_t count) {
  in_narrow(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* of[N];
    std::transform(inputs, inputs + N, of, [](const void* in) { return static_cast<const T*>(in); });
    loop_of<F, T, N>(context, of, static_cast<T*>(result), count);
  });
}
}  // namespace detail

// out = f(elements of the operands, or of the views), computed for arguments of type `dtype`. `widened`: f
// keeps a number that this type may not hold.
template <In kIn = In::kOwn, typename Out, typename From, std::size_t N, typename F>
void map(Out&& out, const std::array<From, N>& in, DType dtype, const F& f, bool widened = false) {
  static_assert(std::is_trivially_copyable_v<F>);
  Loops loops;
  if constexpr (kIn != In::kFloats && kIn != In::kSingle) {
    loops.whole = detail::loop_of<F, std::int64_t, N>;
  }
  if constexpr (kIn != In::kWhole) {
    loops.single = detail::loop_of<F, float, N>;
  }
  if constexpr (kIn != In::kWhole && kIn != In::kSingle) {
    loops.twice = detail::loop_of<F, double, N>;
  }
  if constexpr (kIn == In::kOwn || kIn == In::kFlags || kIn == In::kWhole) {
    loops.narrow = widened ? nullptr : detail::narrow_loop<F, N>;
    loops.flags = kIn == In::kFlags;
  }
  map_with<N>(out, in,
              kIn == In::kFloats   ? floating(dtype)
              : kIn == In::kSingle ? Domain::kFloat
              : kIn == In::kWhole  ? Domain::kInt
                                   : domain_of(dtype),
              loops, &f);
}

// The same of one tensor.
template <In kIn = In::kOwn, typename F>
Status apply(const TensorView& in, TensorView& out, DType dtype, const F& f, bool widened = false) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  map<kIn>(out, Views<1>{&in}, dtype, f, widened);
  return {};
}

}  // namespace slipway::lean
