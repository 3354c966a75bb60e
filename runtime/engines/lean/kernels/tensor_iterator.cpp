#include "lean/kernels/tensor_iterator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"

namespace slipway::lean {
namespace {

// Dimension `i` from the right; 1 where there is none.
std::int64_t size_from_right(const TensorView& view, std::size_t i) {
  return i < view.rank ? view.sizes[view.rank - 1U - i] : 1;
}

}  // namespace

Status mismatch(std::string what) {
  return {Code::kExecution, std::move(what),
          "check the inputs' shapes and values against what the program was exported with"};
}

Operand whole(const TensorView& in) {
  Operand operand;
  operand.data = in.data;
  operand.dtype = in.dtype;
  const auto strides = in.strides();
  std::copy(strides.begin(), strides.begin() + in.rank, operand.steps.begin());
  return operand;
}

Status broadcast_shape(const TensorView& a, const TensorView& b, Shape* shape) {
  const std::size_t rank = std::max(a.rank, b.rank);
  shape->assign(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t x = size_from_right(a, i);
    const std::int64_t y = size_from_right(b, i);
    if (x != y && x != 1 && y != 1) {
      return {Code::kExecution, to_text(a.shape()) + " and " + to_text(b.shape()) + " do not go together",
              "check the inputs' shapes against what the program was exported with"};
    }
    (*shape)[rank - 1 - i] = x == 1 ? y : x;
  }
  return {};
}

Status resize_to_both(const TensorView& a, const TensorView& b, TensorView* out) {
  Shape shape;
  const Status fits = broadcast_shape(a, b, &shape);
  return fits.ok() ? resize(out, shape) : fits;
}

TensorView shaped(const Shape& shape) {
  TensorView view;
  view.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view.sizes.begin());
  return view;
}

Operand operand_of(const TensorView& in, const TensorView& out) {
  Operand operand;
  operand.data = in.data;
  operand.dtype = in.dtype;
  const auto strides = in.strides();
  for (std::size_t i = 0; i < in.rank && i < out.rank; ++i) {
    const std::size_t own = in.rank - 1U - i;
    operand.steps[out.rank - 1U - i] = in.sizes[own] == 1 ? 0 : strides[own];
  }
  return operand;
}

namespace detail {

TensorIterator make_iterator(const TensorView& out, const Operand* operands, std::size_t count) {
  TensorIterator iterator;
  const auto strides = out.strides();
  // Only dimensions with more than one element move anything.
  for (std::size_t i = 0; i < out.rank; ++i) {
    const std::size_t d = out.order[i];
    if (out.sizes[d] == 1) {
      continue;
    }
    // With the dimension before it, when stepping over that one is stepping over all of this.
    bool merge = iterator.rank > 0;
    if (merge) {
      const std::size_t last = iterator.rank - 1;
      merge = iterator.out_steps[last] == strides[d] * out.sizes[d];
      for (std::size_t k = 0; k < count; ++k) {
        merge = merge && iterator.steps[k][last] == operands[k].steps[d] * out.sizes[d];
      }
    }
    const std::size_t at = merge ? iterator.rank - 1 : iterator.rank++;
    iterator.sizes[at] = merge ? iterator.sizes[at] * out.sizes[d] : out.sizes[d];
    iterator.out_steps[at] = strides[d];
    for (std::size_t k = 0; k < count; ++k) {
      iterator.steps[k][at] = operands[k].steps[d];
    }
  }
  if (iterator.rank == 0) {
    iterator.rank = 1;
    iterator.sizes[0] = 1;
    iterator.out_steps[0] = 1;
  }
  return iterator;
}

std::size_t join_rows(TensorIterator* iterator, std::size_t count, bool* begins) {
  constexpr std::int64_t kShortRow = 64;
  if (iterator->rank < 2 || iterator->sizes[iterator->rank - 1] > kShortRow) {
    return 0;
  }
  const std::size_t row = iterator->rank - 1;
  const std::int64_t length = iterator->sizes[row];
  if (iterator->out_steps[row - 1] != iterator->out_steps[row] * length) {
    return 0;
  }
  for (std::size_t k = 0; k < count; ++k) {
    const auto& steps = iterator->steps[k];
    if (steps[row - 1] != 0 && steps[row - 1] != steps[row] * length) {
      return 0;
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    auto& steps = iterator->steps[k];
    begins[k] = steps[row - 1] != steps[row] * length;
    steps[row - 1] = steps[row];
  }
  iterator->out_steps[row - 1] = iterator->out_steps[row];
  iterator->sizes[row - 1] *= length;
  iterator->rank = row;
  return static_cast<std::size_t>(length);
}

}  // namespace detail

namespace {

void move_elements(TensorView& out, const Operand& in) {
  const auto strides = out.strides();
  Move move;
  for (std::size_t d = 0; d < out.rank; ++d) {
    move.add(out.sizes[d], strides[d], in.steps[d]);
  }
  move.prepare(size_of(out.dtype));
  move.run(out.data, in.data);
}

// Whether every element of `out` is one and the same of `in`.
bool is_one_element(const TensorView& out, const Operand& in) {
  for (std::size_t d = 0; d < out.rank; ++d) {
    if (out.sizes[d] != 1 && in.steps[d] != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

template <typename T, std::size_t N>
void map_with(TensorView& out, const std::array<Operand, N>& operands, Loop<T> loop, const void* context) {
  // Enough for a call of the loop to take no time; and a few of them fit into the smallest first cache.
  constexpr std::size_t kTogether = kBlock * sizeof(std::int64_t) / sizeof(T);
  T blocks[N][kTogether];
  T result[kTogether];
  const auto out_size = static_cast<std::int64_t>(size_of(out.dtype));
  if (out.count() == 0) {
    return;
  }
  detail::TensorIterator iterator = detail::make_iterator(out, operands.data(), N);
  bool begins[N] = {};  // with every row of `joined` elements
  const std::size_t joined = detail::join_rows(&iterator, N, begins);
  const std::size_t block = joined == 0 ? kTogether : kTogether / joined * joined;
  detail::visit_rows(
      iterator, out, operands,
      [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
        const bool there = out.dtype == dtype_of<T>() && to_step == 1;
        bool all = there;
        std::array<bool, N> lies{};
        const T* inputs[N];
        for (std::size_t k = 0; k < N; ++k) {
          lies[k] = operands[k].dtype == dtype_of<T>() && steps[k] == 1 && !begins[k];
          all = all && lies[k];
          inputs[k] = lies[k] ? reinterpret_cast<const T*>(from[k]) : blocks[k];
          const std::size_t once = length < block ? length : block;
          if (begins[k]) {
            load(operands[k].dtype, from[k], steps[k], joined, blocks[k]);
            for (std::size_t i = joined; i < once; ++i) {
              blocks[k][i] = blocks[k][i - joined];
            }
          } else if (!lies[k] && steps[k] == 0) {
            load(operands[k].dtype, from[k], 0, once, blocks[k]);
          }
        }
        const std::size_t most = all ? length : block;
        for (std::size_t done = 0; done < length; done += most) {
          const std::size_t count = length - done < most ? length - done : most;
          const auto at = static_cast<std::int64_t>(done);
          for (std::size_t k = 0; k < N; ++k) {
            if (lies[k]) {
              inputs[k] = reinterpret_cast<const T*>(from[k]) + done;
            } else if (steps[k] != 0 && !begins[k]) {
              const auto in_size = static_cast<std::int64_t>(size_of(operands[k].dtype));
              load(operands[k].dtype, from[k] + at * steps[k] * in_size, steps[k], count, blocks[k]);
            }
          }
          loop(context, inputs, there ? reinterpret_cast<T*>(to) + done : result, count);
          if (!there) {
            store(out.dtype, result, count, to + at * to_step * out_size, to_step);
          }
        }
      });
}

template void map_with(TensorView&, const std::array<Operand, 1>&, Loop<std::int64_t>, const void*);
template void map_with(TensorView&, const std::array<Operand, 1>&, Loop<float>, const void*);
template void map_with(TensorView&, const std::array<Operand, 1>&, Loop<double>, const void*);
template void map_with(TensorView&, const std::array<Operand, 2>&, Loop<std::int64_t>, const void*);
template void map_with(TensorView&, const std::array<Operand, 2>&, Loop<float>, const void*);
template void map_with(TensorView&, const std::array<Operand, 2>&, Loop<double>, const void*);
template void map_with(TensorView&, const std::array<Operand, 3>&, Loop<std::int64_t>, const void*);
template void map_with(TensorView&, const std::array<Operand, 3>&, Loop<float>, const void*);
template void map_with(TensorView&, const std::array<Operand, 3>&, Loop<double>, const void*);

void copy(TensorView& out, const Operand& in) {
  if (in.dtype == out.dtype) {
    return move_elements(out, in);
  }
  if (out.count() != 0 && is_one_element(out, in)) {
    // Converted once.
    std::uint64_t element = 0;
    in_domain(domain_of(in.dtype), [&](auto value) {
      load(in.dtype, in.data, 1, 1, &value);
      store(out.dtype, &value, 1, reinterpret_cast<std::uint8_t*>(&element), 1);
      return 0;
    });
    Operand one;
    one.data = reinterpret_cast<const std::uint8_t*>(&element);
    one.dtype = out.dtype;
    return move_elements(out, one);
  }
  in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, std::array<Operand, 1>{in}, [](const T* const* inputs, T* result, std::size_t count) {
      std::memcpy(result, inputs[0], count * sizeof(T));
    });
    return 0;
  });
}

void fill(TensorView& out, const Number& number) {
  Operand operand;
  operand.dtype = number.integral ? DType::kInt64 : DType::kFloat64;
  operand.data = number.integral ? reinterpret_cast<const std::uint8_t*>(&number.integer)
                                 : reinterpret_cast<const std::uint8_t*>(&number.real);
  copy(out, operand);
}

Status wrap_dim(std::int64_t dim, std::size_t rank, std::size_t* found) {
  const std::int64_t wrapped = dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim;
  if (wrapped < 0 || wrapped >= static_cast<std::int64_t>(rank)) {
    return {Code::kExecution,
            "there is no dimension " + std::to_string(dim) + " in a tensor of " + std::to_string(rank),
            "check the inputs' shapes against what the program was exported with"};
  }
  *found = static_cast<std::size_t>(wrapped);
  return {};
}

Part part_of(const TensorView& view, std::size_t dim, std::int64_t start, std::int64_t length) {
  Part part;
  const auto strides = view.strides();
  part.shape = view.shape();
  part.shape[dim] = length;
  part.operand.dtype = view.dtype;
  // A tensor without elements may have no memory.
  part.operand.data = view.data == nullptr
                          ? nullptr
                          : view.data + start * strides[dim] * static_cast<std::int64_t>(size_of(view.dtype));
  std::copy(strides.begin(), strides.begin() + view.rank, part.operand.steps.begin());
  return part;
}

void copy_into(const Part& target, const Operand& in) {
  const std::size_t rank = target.shape.size();
  std::array<std::int64_t, kMostDims> position{};
  for (const std::int64_t size : target.shape) {
    if (size == 0) {
      return;
    }
  }
  if (in.dtype == target.operand.dtype) {
    Move move;
    for (std::size_t d = 0; d < rank; ++d) {
      move.add(target.shape[d], target.operand.steps[d], in.steps[d]);
    }
    move.prepare(size_of(in.dtype));
    // const_cast: the part is of an output.
    move.run(const_cast<std::uint8_t*>(target.operand.data), in.data);
    return;
  }
  const std::int64_t row = rank == 0 ? 1 : target.shape[rank - 1];
  const std::int64_t to_step = rank == 0 ? 1 : target.operand.steps[rank - 1];
  const std::int64_t from_step = rank == 0 ? 1 : in.steps[rank - 1];
  for (;;) {
    std::int64_t to = 0;
    std::int64_t from = 0;
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      to += position[d] * target.operand.steps[d];
      from += position[d] * in.steps[d];
    }
    // const_cast: the part is of an output.
    auto* to_data = const_cast<std::uint8_t*>(target.operand.data) +
                    to * static_cast<std::int64_t>(size_of(target.operand.dtype));
    const std::uint8_t* from_data = in.data + from * static_cast<std::int64_t>(size_of(in.dtype));
    in_domain(domain_of(in.dtype), [&](auto zero) {
      using T = decltype(zero);
      T block[kBlock];
      for (std::int64_t done = 0; done < row; done += static_cast<std::int64_t>(kBlock)) {
        const auto count = static_cast<std::size_t>(std::min<std::int64_t>(row - done, kBlock));
        load(in.dtype, from_data + done * from_step * static_cast<std::int64_t>(size_of(in.dtype)), from_step,
             count, block);
        store(target.operand.dtype, block, count,
              to_data + done * to_step * static_cast<std::int64_t>(size_of(target.operand.dtype)), to_step);
      }
      return 0;
    });
    std::size_t d = rank == 0 ? 0 : rank - 1;
    while (d > 0 && ++position[d - 1] == target.shape[d - 1]) {
      position[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

void advance(Operand* operand, std::int64_t elements) {
  // A tensor without elements may have no memory to be ahead in.
  if (operand->data != nullptr) {
    operand->data += elements * static_cast<std::int64_t>(size_of(operand->dtype));
  }
}

Status copy_as(TensorView& out, const Shape& shape, const Operand& operand) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  copy(out, operand);
  return {};
}

namespace {

// Whether rows of narrow integers lie one element after the other, and were computed as they lie.
template <std::size_t N>
bool map_narrow(TensorView& out, const std::array<Operand, N>& operands, const Loops& loops,
                const void* context) {
  bool fits = false;
  in_narrow(out.dtype, [&fits](auto) { fits = true; });
  const detail::TensorIterator iterator = detail::make_iterator(out, operands.data(), N);
  const std::size_t row = iterator.rank - 1;
  fits = fits && iterator.out_steps[row] == 1 && out.count() != 0;
  for (std::size_t k = 0; k < N; ++k) {
    fits = fits && operands[k].dtype == out.dtype && iterator.steps[k][row] == 1;
  }
  if (fits) {
    detail::visit_rows(
        iterator, out, operands,
        [&](std::uint8_t* to, std::int64_t, const auto& from, const auto&, std::size_t length) {
          const void* inputs[N];
          std::copy_n(from.data(), N, inputs);
          loops.narrow(out.dtype, context, inputs, to, length);
        });
  }
  return fits;
}

template <std::size_t N>
void map_in(Domain domain, TensorView& out, const std::array<Operand, N>& operands, const Loops& loops,
            const void* context) {
  switch (domain) {
    case Domain::kInt:
      if (loops.narrow != nullptr && map_narrow(out, operands, loops, context)) {
        return;
      }
      return map_with(out, operands, loops.whole, context);
    case Domain::kFloat:
      return map_with(out, operands, loops.single, context);
    case Domain::kDouble:
      return map_with(out, operands, loops.twice, context);
  }
}

}  // namespace

Status map_tensor(const TensorView& in, TensorView& out, Domain domain, const Loops& loops,
                  const void* context) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  map_in(domain, out, std::array<Operand, 1>{operand_of(in, out)}, loops, context);
  return {};
}

Status map_by_one(const TensorView& a, const TensorView& b, TensorView& out, Domain domain,
                  const Loops& loops, const void* context) {
  SLIPWAY_RETURN_IF_ERROR(resize_to_both(a, b, &out));
  map_in(domain, out, std::array<Operand, 1>{operand_of(a, out)}, loops, context);
  return {};
}

Status map_binary(const TensorView& a, const TensorView& b, TensorView& out, Domain domain,
                  const Loops& loops, const void* context) {
  SLIPWAY_RETURN_IF_ERROR(resize_to_both(a, b, &out));
  map_in(domain, out, std::array<Operand, 2>{operand_of(a, out), operand_of(b, out)}, loops, context);
  return {};
}

}  // namespace slipway::lean
