// Elements that a mask, a comparison or their own value chooses.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/platform.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

Status masked_fill(const TensorView& in, const TensorView& mask, Number number, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize_to_all({&in, &mask}, &out));
  map<In::kWide>(out, Views<2>{&in, &mask}, in.dtype,
                 [number](auto x, auto flag) { return flag != 0 ? number.as<decltype(x)>() : x; });
  return {};
}

// The bits of an element that are 0 in the number 0 alone: without the sign of floats.
std::uint64_t bits_of_value(DType dtype) {
  const std::size_t bits = 8 * size_of(dtype) - (is_floating(dtype) ? 1 : 0);
  return bits >= 64 ? UINT64_MAX : (std::uint64_t{1} << bits) - 1;
}

// The places of the first `rows` elements that are not 0. There may be fewer by now if `to` is memory of
// theirs.
template <typename Bits>
void list_nonzero(const Bits* values, std::size_t elements, const Shape& shape, Bits mask, std::int64_t* to,
                  std::size_t rows) {
  const std::size_t rank = shape.size();
  const std::int64_t length = shape[rank - 1];
  std::array<std::int64_t, kMostDims> position{};
  const Bits* const end = values + elements;
  for (std::size_t found = 0; found < rows && values != end; values += length) {
    // Written always and kept where it counts: no branch that guesses at the data.
    const std::size_t before = found;
    for (std::int64_t i = 0; i < length && found < rows; ++i) {
      to[found * rank + rank - 1] = i;
      found += (values[i] & mask) != 0 ? 1 : 0;
    }
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      for (std::size_t row = before; row < found; ++row) {
        to[row * rank + d] = position[d];
      }
    }
    for (std::size_t d = rank - 1; d-- > 0 && ++position[d] == shape[d];) {
      position[d] = 0;
    }
  }
}

template <typename Bits>
Status nonzero_of(const TensorView& in, const std::uint8_t* data, TensorView& out) {
  const auto* values = reinterpret_cast<const Bits*>(data);
  const auto mask = static_cast<Bits>(bits_of_value(in.dtype));
  // Counted before they are written down: as many as the output has room for.
  const std::int64_t rows =
      in.rank == 0 ? 0
                   : std::count_if(values, values + in.count(), [mask](Bits x) { return (x & mask) != 0; });
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, Shape{rows, in.rank}), out);
  // The exporter may have planned the table a column at a time, as ATen makes it.
  Values<std::int64_t> positions(out, {});
  list_nonzero(values, in.count(), in.shape(), mask, positions.data(), static_cast<std::size_t>(rows));
  positions.put(out);
  return {};
}

Status nonzero(const TensorView& in, TensorView& out, Scratch& scratch) {
  const std::uint8_t* data = in.data;
  if (!in.contiguous()) {
    const TensorView straight = in.in_rows(scratch.get(in.bytes()));
    copy(straight, whole(in));
    data = straight.data;
  }
  return in_bits(size_of(in.dtype), [&](auto bits) { return nonzero_of<decltype(bits)>(in, data, out); });
}

// The elements whose mask is true, broadcast together, in row-major order.
Status masked_select(const TensorView& in, const TensorView& mask, TensorView& out) {
  SLIPWAY_TRY(const Shape shape, broadcast_shape({&in, &mask}));
  if (in.dtype != out.dtype || mask.dtype != DType::kBool) {
    return mismatch("a mask or the result has the wrong type");
  }
  const TensorView both = shaped(shape);
  const Operand elements = operand_of(in, both);
  const Operand flags = operand_of(mask, both);
  // Small tensors broadcast to more than any memory holds.
  std::size_t count = 0;
  SLIPWAY_RETURN_IF_ERROR(count_elements(shape, 1, &count)
                              ? check_room(count, "what a mask selects from")
                              : mismatch("a mask of impossible size: " + to_text(shape)));
  const Axes axes(shape, {flags.steps.data(), elements.steps.data()});
  // Calls f(offset of the element) where the mask is true.
  const auto each_chosen = [&](auto f) {
    Walk<2> walk(axes);
    for (bool left = !axes.empty; left; left = walk.next()) {
      if (*at(mask, walk.offsets[0]) != 0) {
        f(walk.offsets[1]);
      }
    }
  };
  std::int64_t total = 0;
  each_chosen([&total](std::int64_t) { ++total; });
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{total}));
  const std::size_t size = size_of(in.dtype);
  std::uint8_t* to = out.data;
  each_chosen([&](std::int64_t offset) {
    move_bytes(to, at(in, offset), size);
    to += size;
  });
  return {};
}

// Where the mask is true, one element of source after the other.
Status masked_scatter(const TensorView& in, const TensorView& mask, const TensorView& source, TensorView& out,
                      Scratch& scratch) {
  SLIPWAY_TRY(const Shape shape, broadcast_shape({&in, &mask}));
  if (in.dtype != out.dtype || source.dtype != out.dtype || mask.dtype != DType::kBool) {
    return mismatch("a mask or what is put in has the wrong type");
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  copy(out, operand_of(in, out));
  std::uint8_t* elements = source.data;
  if (!source.contiguous()) {
    elements = scratch.get(source.bytes());
    copy(source.in_rows(elements), whole(source));
  }
  Axes places(shape, {operand_of(mask, out).steps.data(), out.strides().data()});
  places.merge();
  const std::size_t outer = places.rank == 0 ? 0 : places.rank - 1;
  const Axis row = places.rank == 0 ? Axis{1, {}} : places.items[outer];
  const bool enough = in_bits(size_of(out.dtype), [&](auto zero) {
    using Bits = decltype(zero);
    const auto* from = reinterpret_cast<const Bits*>(elements);
    const Bits* const end = from + source.count();
    Walk<2> place(places, outer);
    for (bool left = !places.empty; left; left = place.next()) {
      const std::uint8_t* flag = mask.data + place.offsets[0];
      auto* to = reinterpret_cast<Bits*>(out.data) + place.offsets[1];
      for (std::int64_t i = 0; i < row.size; ++i, flag += row.steps[0], to += row.steps[1]) {
        if (*flag != 0) {
          if (from == end) {
            return false;
          }
          *to = *from++;
        }
      }
    }
    return true;
  });
  return enough ? Status()
                : mismatch("the mask has more places than " + to_text(source.shape()) + " has elements");
}

// A row of elements that one of two rows has, by a row of flags; steps are 0, 1 or more.
template <typename Bits>
void choose_row(const std::array<const std::uint8_t*, 3>& from, const std::array<std::int64_t, 3>& steps,
                std::uint8_t* to, std::int64_t to_step, std::size_t count) {
  const std::uint8_t* flags = from[0];
  const auto* a = reinterpret_cast<const Bits*>(from[1]);
  const auto* b = reinterpret_cast<const Bits*>(from[2]);
  auto* result = reinterpret_cast<Bits*>(to);
  if (steps[0] == 0) {
    const std::size_t chosen = *flags != 0 ? 1 : 2;
    const auto* one = chosen == 1 ? a : b;
    if (steps[chosen] == 1 && to_step == 1) {
      std::memmove(result, one, count * sizeof(Bits));
      return;
    }
    for (std::size_t i = 0; i < count; ++i, one += steps[chosen], result += to_step) {
      *result = *one;
    }
    return;
  }
  const bool plain = steps[0] == 1 && to_step == 1;
  if (plain && steps[1] == 1 && steps[2] == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = flags[i] != 0 ? a[i] : b[i];
    }
  } else if (plain && steps[1] == 0 && steps[2] == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = flags[i] != 0 ? *a : b[i];
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      *result = *flags != 0 ? *a : *b;
      flags += steps[0];
      a += steps[1];
      b += steps[2];
      result += to_step;
    }
  }
}

Status where(const TensorView& condition, const TensorView& a, const TensorView& b, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize_to_all({&condition, &a, &b}, &out));
  const std::array<Operand, 3> operands = {operand_of(condition, out), operand_of(a, out),
                                           operand_of(b, out)};
  if (condition.dtype == DType::kBool && a.dtype == out.dtype && b.dtype == out.dtype) {
    // Elements as they are, where flags are bytes.
    for_each_row(
        out, operands,
        [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
          in_bits(size_of(out.dtype),
                  [&](auto bits) { choose_row<decltype(bits)>(from, steps, to, to_step, length); });
        });
    return {};
  }
  map<In::kWide>(out, operands, promote(a.dtype, b.dtype),
                 [](auto flag, auto x, auto y) { return flag != 0 ? x : y; });
  return {};
}

Status clamp_tensors(const TensorView& in, const TensorView* low, const TensorView* high, TensorView& out) {
  const TensorView& first = low != nullptr ? *low : in;
  const TensorView& last = high != nullptr ? *high : in;
  SLIPWAY_RETURN_IF_ERROR(resize_to_all({&in, &first, &last}, &out));
  const bool has_low = low != nullptr;
  const bool has_high = high != nullptr;
  map(out, Views<3>{&in, &first, &last}, out.dtype, [=](auto x, auto least, auto most) {
    // A NaN bound wins over everything.
    x = has_low && (x < least || least != least) ? least : x;
    return has_high && (x > most || most != most) ? most : x;
  });
  return {};
}

}  // namespace

constexpr KernelTable kMaskedKernels = {
    {"aten::clamp.Tensor_out", typed<clamp_tensors>, Sharing::kEach},
    {"aten::masked_fill.Scalar_out", typed<masked_fill>, Sharing::kEach},
    {"aten::masked_scatter.out", typed<masked_scatter>, Sharing::kFirst},
    {"aten::masked_select.out", typed<masked_select>},
    {"aten::nonzero.out", typed<nonzero>},
    {"aten::where.self_out", typed<where>, Sharing::kEach},
};

}  // namespace slipway::lean
