// Elements that a mask, or their own value, chooses.
#include <algorithm>
#include <cstring>

#include "device_memory.h"
#include "lean/kernels/offsets.h"
#include "lean/kernels/tables.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// aten::masked_fill.Scalar_out(Tensor self, Tensor mask, Scalar value, *, Tensor(a!) out)
Status masked_fill(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& mask = arguments.tensor(1);
  TensorView& out = arguments.tensor(3);
  const Number number = arguments.number(2);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Shape shape;
  Status done = broadcast_shape(in, mask, &shape);
  if (done.ok()) {
    done = resize(&out, shape);
  }
  SLIPWAY_RETURN_IF_ERROR(done);
  in_domain(domain_of(in.dtype), [&](auto zero) {
    using T = decltype(zero);
    const T value = number.as<T>();
    map<T>(out, std::array<Operand, 2>{operand_of(in, out), operand_of(mask, out)},
           [value](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               result[i] = inputs[1][i] != 0 ? value : inputs[0][i];
             }
           });
    return 0;
  });
  return {};
}

// aten::nonzero.out(Tensor self, *, Tensor(a!) out): as many rows as there are elements that are not 0.
Status nonzero(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(1);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const Shape shape = in.shape();
  const auto steps = in.strides();
  const std::size_t count = in.count();
  const auto holds = [&](std::size_t i) {
    double value = 0;
    load(in.dtype, at(in, offset_of(i, shape, steps)), 1, 1, &value);
    return value != 0;
  };
  // Counted before they are written down: as many as the output has room for.
  std::int64_t rows = 0;
  for (std::size_t i = 0; in.rank != 0 && i < count; ++i) {
    rows += holds(i) ? 1 : 0;
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{rows, in.rank}));
  std::vector<std::int64_t> positions(out.count());
  std::size_t end = 0;
  for (std::size_t i = 0; i < count && end < positions.size(); ++i) {
    if (!holds(i)) {
      continue;
    }
    std::size_t rest = i;
    for (std::size_t d = in.rank; d-- > 0;) {
      positions[end + d] = static_cast<std::int64_t>(rest % static_cast<std::size_t>(shape[d]));
      rest /= static_cast<std::size_t>(shape[d]);
    }
    end += in.rank;
  }
  if (!positions.empty()) {
    // The exporter may have planned the table a column at a time, as ATen makes it.
    copy(out, operand_of(straightened(out, positions.data()), out));
  }
  return {};
}

// aten::masked_select.out(Tensor self, Tensor mask, *, Tensor(a!) out): the elements whose mask is true,
// broadcast together, in row-major order.
Status masked_select(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& mask = arguments.tensor(1);
  TensorView& out = arguments.tensor(2);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  TensorView both;
  Shape shape;
  const Status fits = broadcast_shape(in, mask, &shape);
  if (!fits.ok() || in.dtype != out.dtype || mask.dtype != DType::kBool) {
    return fits.ok() ? mismatch("a mask or the result has the wrong type") : fits;
  }
  both.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), both.sizes.begin());
  const Operand elements = operand_of(in, both);
  const Operand flags = operand_of(mask, both);
  const auto holds = [&](std::size_t i) { return *at(mask, offset_of(i, shape, flags.steps)) != 0; };
  // Small tensors broadcast to more than any memory holds.
  std::size_t count = 0;
  Status done = count_elements(shape, 1, &count) ? check_room(count, "what a mask selects from")
                                                 : mismatch("a mask of impossible size: " + to_text(shape));
  SLIPWAY_RETURN_IF_ERROR(done);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    total += holds(i) ? 1 : 0;
  }
  done = resize(&out, Shape{total});
  SLIPWAY_RETURN_IF_ERROR(done);
  std::vector<std::int64_t> chosen;
  chosen.reserve(out.count());
  for (std::size_t i = 0; i < count && chosen.size() < out.count(); ++i) {
    if (holds(i)) {
      chosen.push_back(offset_of(i, shape, elements.steps));
    }
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    std::memcpy(at(out, static_cast<std::int64_t>(i)), at(in, chosen[i]), size_of(in.dtype));
  }
  return {};
}

// aten::masked_scatter.out(Tensor self, Tensor mask, Tensor source, *, Tensor(a!) out): where the mask is
// true, one element of source after the other.
Status masked_scatter(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& mask = arguments.tensor(1);
  const TensorView& source = arguments.tensor(2);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Shape shape;
  Status done = broadcast_shape(in, mask, &shape);
  if (done.ok() && (in.dtype != out.dtype || source.dtype != out.dtype || mask.dtype != DType::kBool)) {
    done = mismatch("a mask or what is put in has the wrong type");
  }
  if (done.ok()) {
    done = resize(&out, shape);
  }
  SLIPWAY_RETURN_IF_ERROR(done);
  copy(out, operand_of(in, out));
  const Operand flags = operand_of(mask, out);
  const auto out_steps = out.strides();
  const auto source_steps = source.strides();
  const Shape source_shape = source.shape();
  std::size_t taken = 0;
  for (std::size_t i = 0, count = out.count(), most = source.count(); i < count; ++i) {
    if (*at(mask, offset_of(i, shape, flags.steps)) == 0) {
      continue;
    }
    if (taken == most) {
      return mismatch("the mask has more places than " + to_text(source_shape) + " has elements");
    }
    std::memcpy(at(out, offset_of(i, shape, out_steps)),
                at(source, offset_of(taken++, source_shape, source_steps)), size_of(out.dtype));
  }
  return {};
}

constexpr KernelEntry kMaskedTable[] = {
    {"aten::masked_fill.Scalar_out", masked_fill, 4},
    {"aten::masked_scatter.out", masked_scatter, 4},
    {"aten::masked_select.out", masked_select, 3},
    {"aten::nonzero.out", nonzero, 2},
};

}  // namespace

const KernelEntry* masked_kernels(std::size_t* count) {
  return entries_of(kMaskedTable, count);
}

}  // namespace slipway::lean
