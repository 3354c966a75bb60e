// Slices of a tensor: copied out of it, or written into a copy of it.
#include <algorithm>

#include "lean/kernels/strided_copy.h"
#include "lean/kernels/tables.h"

namespace slipway::lean {
namespace {

// aten::select_copy.int_out(Tensor self, int dim, SymInt index, *, Tensor(a!) out)
Status select_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(1), in.rank, &dim));
  std::int64_t index = arguments.integer(2);
  index = index < 0 ? index + in.sizes[dim] : index;
  if (index < 0 || index >= in.sizes[dim]) {
    return mismatch("index " + std::to_string(index) + " is outside dimension " + std::to_string(dim) +
                    " of " + to_text(in.shape()));
  }
  Operand operand = whole(in);
  advance(&operand, index * operand.steps[dim]);
  std::copy(operand.steps.begin() + static_cast<std::ptrdiff_t>(dim) + 1, operand.steps.end(),
            operand.steps.begin() + static_cast<std::ptrdiff_t>(dim));
  Shape shape = in.shape();
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  return copy_as(arguments.tensor(3), shape, operand);
}

// Bounds of a slice as Python has them: from the end when negative, cut to what is there.
std::int64_t bound(std::optional<std::int64_t> index, std::int64_t missing, std::int64_t size) {
  std::int64_t found = index.value_or(missing);
  found = found < 0 ? found + size : found;
  return std::clamp<std::int64_t>(found, 0, size);
}

// aten::slice_copy.Tensor_out(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1, *,
// Tensor(a!) out)
Status slice_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(1), in.rank, &dim));
  const std::int64_t size = in.sizes[dim];
  const std::int64_t start = bound(arguments.optional_integer(2), 0, size);
  const std::int64_t end = std::max(start, bound(arguments.optional_integer(3), size, size));
  const std::int64_t step = arguments.integer(4);
  if (step <= 0) {
    return mismatch("a slice has the step " + std::to_string(step));
  }
  Operand operand = whole(in);
  advance(&operand, start * operand.steps[dim]);
  operand.steps[dim] *= step;
  Shape shape = in.shape();
  shape[dim] = end == start ? 0 : (end - start - 1) / step + 1;
  return copy_as(arguments.tensor(5), shape, operand);
}

// aten::narrow_copy.out(Tensor self, int dim, SymInt start, SymInt length, *, Tensor(a!) out)
Status narrow_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(1), in.rank, &dim));
  std::int64_t start = arguments.integer(2);
  start = start < 0 ? start + in.sizes[dim] : start;
  const std::int64_t length = arguments.integer(3);
  if (start < 0 || length < 0 || start > in.sizes[dim] || length > in.sizes[dim] - start) {
    return mismatch("cannot take " + std::to_string(length) + " from " + std::to_string(start) + " on of " +
                    to_text(in.shape()));
  }
  Operand operand = whole(in);
  advance(&operand, start * operand.steps[dim]);
  Shape shape = in.shape();
  shape[dim] = length;
  return copy_as(arguments.tensor(4), shape, operand);
}

// aten::select_scatter.out(Tensor self, Tensor src, int dim, SymInt index, *, Tensor(a!) out)
Status select_scatter(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& source = arguments.tensor(1);
  TensorView& out = arguments.tensor(4);
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(2), in.rank, &dim));
  Status done = resize(&out, in.shape());
  std::int64_t index = arguments.integer(3);
  index = index < 0 ? index + in.sizes[dim] : index;
  if (!done.ok() || index < 0 || index >= in.sizes[dim] || source.rank + 1U != in.rank) {
    return done.ok() ? mismatch("what is put in does not fit " + to_text(in.shape())) : done;
  }
  copy(out, whole(in));
  Operand operand = whole(source);
  std::copy_backward(operand.steps.begin() + static_cast<std::ptrdiff_t>(dim), operand.steps.end() - 1,
                     operand.steps.end());
  Part target = part_of(out, dim, index, 1);
  Shape expected = target.shape;
  expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(dim));
  if (expected != source.shape()) {
    return mismatch("what is put in does not fit " + to_text(in.shape()));
  }
  copy_into(target, operand);
  return {};
}

// aten::slice_scatter.out(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt
// step=1, *, Tensor(a!) out)
Status slice_scatter(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& source = arguments.tensor(1);
  TensorView& out = arguments.tensor(6);
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(2), in.rank, &dim));
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  const std::int64_t size = in.sizes[dim];
  const std::int64_t start = bound(arguments.optional_integer(3), 0, size);
  const std::int64_t end = std::max(start, bound(arguments.optional_integer(4), size, size));
  const std::int64_t step = arguments.integer(5);
  if (step <= 0) {
    return mismatch("a slice has the step " + std::to_string(step));
  }
  Part target = part_of(out, dim, start, (end - start + step - 1) / step);
  target.operand.steps[dim] *= step;
  if (target.shape != source.shape()) {
    return mismatch("what is put in does not fit the slice of " + to_text(in.shape()));
  }
  copy(out, whole(in));
  copy_into(target, whole(source));
  return {};
}

constexpr KernelEntry kSlicingTable[] = {
    {"aten::narrow_copy.out", narrow_copy, 5},
    {"aten::select_copy.int_out", select_copy, 4},
    {"aten::select_scatter.out", select_scatter, 5, Sharing::kFirst},
    {"aten::slice_copy.Tensor_out", slice_copy, 6},
    {"aten::slice_scatter.out", slice_scatter, 7, Sharing::kFirst},
};

}  // namespace

KernelTable slicing_kernels() {
  return kSlicingTable;
}

}  // namespace slipway::lean
