// Operators that put tensors together, take them apart or repeat them, and slices.
#include <algorithm>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// The part at one place of a dimension, without that dimension.
Part place_in(const TensorView& view, std::size_t dim, std::int64_t place) {
  Part part = part_of(view, dim, place, 1);
  const auto at = static_cast<std::ptrdiff_t>(dim);
  part.shape.erase(part.shape.begin() + at);
  std::copy(part.operand.steps.begin() + at + 1, part.operand.steps.end(), part.operand.steps.begin() + at);
  return part;
}

Status cat(std::vector<TensorView*> tensors, std::int64_t dim_given, TensorView& out) {
  // Empty one-dimensional tensors are left out, whatever the others' shape.
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                               [](const TensorView* view) {
                                 return view == nullptr || (view->rank == 1 && view->sizes[0] == 0);
                               }),
                tensors.end());
  if (tensors.empty()) {
    return {};
  }
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(dim_given, tensors[0]->rank, &dim));
  Shape shape = tensors[0]->shape();
  shape[dim] = 0;
  for (const TensorView* view : tensors) {
    Shape other = view->shape();
    if (other.size() != shape.size()) {
      return mismatch("tensors of different ranks cannot be joined");
    }
    shape[dim] += other[dim];
    other[dim] = shape[dim];
    if (other != shape) {
      return mismatch("tensors whose other sizes differ cannot be joined");
    }
  }
  const Status resized = resize(&out, shape);
  std::int64_t start = 0;
  for (std::size_t i = 0; resized.ok() && i < tensors.size(); ++i) {
    const std::int64_t length = tensors[i]->sizes[dim];
    copy_into(part_of(out, dim, start, length), whole(*tensors[i]));
    start += length;
  }
  return resized;
}

Status stack(const std::vector<TensorView*>& tensors, std::int64_t dim_given, TensorView& out) {
  if (tensors.empty() || tensors[0] == nullptr) {
    return {};
  }
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(dim_given, tensors[0]->rank + 1U, &dim));
  Shape shape = tensors[0]->shape();
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), static_cast<std::int64_t>(tensors.size()));
  const Status resized = resize(&out, shape);
  for (std::size_t i = 0; resized.ok() && i < tensors.size(); ++i) {
    if (tensors[i] == nullptr || tensors[i]->shape() != tensors[0]->shape()) {
      return mismatch("tensors of different shapes cannot be stacked");
    }
    copy_into(place_in(out, dim, static_cast<std::int64_t>(i)), whole(*tensors[i]));
  }
  return resized;
}

// Parts of the given lengths, one output each.
Status split(Arguments& arguments, std::size_t dim, const std::vector<std::int64_t>& lengths,
             std::size_t out_at) {
  const TensorView& in = arguments.tensor(0);
  const std::vector<TensorView*> outs = arguments.tensors(out_at);
  if (outs.size() != lengths.size()) {
    return mismatch("the parts are not as many as the outputs");
  }
  std::int64_t start = 0;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (outs[i] == nullptr || lengths[i] < 0 || lengths[i] > in.sizes[dim] - start) {
      return mismatch("the parts are larger than " + to_text(in.shape()));
    }
    const Part part = part_of(in, dim, start, lengths[i]);
    SLIPWAY_RETURN_IF_ERROR(resize(outs[i], part.shape));
    copy(*outs[i], part.operand);
    start += lengths[i];
  }
  return {};
}

// aten::split_copy.Tensor_out(Tensor self, SymInt split_size, int dim=0, *, Tensor(a!)[] out)
Status split_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(arguments.integer(2), in.rank, &dim);
  const std::int64_t size = arguments.integer(1);
  if (!wrapped.ok() || size <= 0) {
    return wrapped.ok() ? mismatch("the parts have no size") : wrapped;
  }
  // As many as there are outputs, before they are counted out: a dimension beside an empty one can be any.
  const std::int64_t parts = in.sizes[dim] == 0 ? 0 : (in.sizes[dim] - 1) / size + 1;
  if (parts != static_cast<std::int64_t>(arguments.tensors(3).size())) {
    return mismatch("the parts are not as many as the outputs");
  }
  std::vector<std::int64_t> lengths;
  for (std::int64_t left = in.sizes[dim]; left > 0; left -= size) {
    lengths.push_back(std::min(size, left));
  }
  return split(arguments, dim, lengths, 3);
}

// aten::split_with_sizes_copy.out(Tensor self, SymInt[] split_sizes, int dim=0, *, Tensor(a!)[] out)
Status split_with_sizes(Arguments& arguments) {
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(arguments.integer(2), arguments.tensor(0).rank, &dim);
  return wrapped.ok() ? split(arguments, dim, arguments.integers(1), 3) : wrapped;
}

Status unbind_copy(const TensorView& in, std::int64_t dim_given, const std::vector<TensorView*>& outs) {
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(dim_given, in.rank, &dim);
  if (!wrapped.ok() || static_cast<std::int64_t>(outs.size()) != in.sizes[dim]) {
    return wrapped.ok() ? mismatch("the parts are not as many as the outputs") : wrapped;
  }
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const Part part = place_in(in, dim, static_cast<std::int64_t>(i));
    SLIPWAY_RETURN_IF_ERROR(outs[i] == nullptr ? mismatch("an output is missing")
                                               : resize(outs[i], part.shape));
    copy(*outs[i], part.operand);
  }
  return {};
}

Status repeat(const TensorView& in, const std::vector<std::int64_t>& times, TensorView& out) {
  if (times.size() < in.rank || 2 * times.size() > kMostDims) {
    return mismatch("cannot repeat " + to_text(in.shape()));
  }
  const std::size_t added = times.size() - in.rank;
  Shape shape(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    shape[i] = times[i] * (i < added ? 1 : in.sizes[i - added]);
  }
  const Status resized = resize(&out, shape);
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  // Every dimension is two: which repetition, and where in it.
  const auto in_strides = in.strides();
  const auto out_strides = out.strides();
  Part target;
  Operand source;
  source.data = in.data;
  source.dtype = in.dtype;
  target.operand.data = out.data;
  target.operand.dtype = out.dtype;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::int64_t size = i < added ? 1 : in.sizes[i - added];
    target.operand.steps[target.shape.size()] = out_strides[i] * size;
    target.shape.push_back(times[i]);
    target.operand.steps[target.shape.size()] = out_strides[i];
    source.steps[target.shape.size()] = i < added ? 0 : in_strides[i - added];
    target.shape.push_back(size);
  }
  copy_into(target, source);
  return {};
}

Status select_copy(const TensorView& in, std::int64_t dim_given, std::int64_t index, TensorView& out) {
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(dim_given, in.rank, &dim));
  index = index < 0 ? index + in.sizes[dim] : index;
  if (index < 0 || index >= in.sizes[dim]) {
    return mismatch("index " + std::to_string(index) + " is outside dimension " + std::to_string(dim) +
                    " of " + to_text(in.shape()));
  }
  const Part part = place_in(in, dim, index);
  return copy_as(out, part.shape, part.operand);
}

// Bounds of a slice as Python has them: from the end when negative, cut to what is there.
std::int64_t bound(std::optional<std::int64_t> index, std::int64_t missing, std::int64_t size) {
  std::int64_t found = index.value_or(missing);
  found = found < 0 ? found + size : found;
  return std::clamp<std::int64_t>(found, 0, size);
}

Status slice_of(const TensorView& view, std::int64_t dim_given, std::optional<std::int64_t> start_given,
                std::optional<std::int64_t> end_given, std::int64_t step, Part* part) {
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(dim_given, view.rank, &dim));
  const std::int64_t size = view.sizes[dim];
  const std::int64_t start = bound(start_given, 0, size);
  const std::int64_t end = std::max(start, bound(end_given, size, size));
  if (step <= 0) {
    return mismatch("a slice has the step " + std::to_string(step));
  }
  *part = part_of(view, dim, start, end == start ? 0 : (end - start - 1) / step + 1);
  part->operand.steps[dim] *= step;
  return {};
}

Status slice_copy(const TensorView& in, std::int64_t dim, std::optional<std::int64_t> start,
                  std::optional<std::int64_t> end, std::int64_t step, TensorView& out) {
  Part part;
  SLIPWAY_RETURN_IF_ERROR(slice_of(in, dim, start, end, step, &part));
  return copy_as(out, part.shape, part.operand);
}

Status narrow_copy(const TensorView& in, std::int64_t dim_given, std::int64_t start, std::int64_t length,
                   TensorView& out) {
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(dim_given, in.rank, &dim));
  start = start < 0 ? start + in.sizes[dim] : start;
  if (start < 0 || length < 0 || start > in.sizes[dim] || length > in.sizes[dim] - start) {
    return mismatch("cannot take " + std::to_string(length) + " from " + std::to_string(start) + " on of " +
                    to_text(in.shape()));
  }
  const Part part = part_of(in, dim, start, length);
  return copy_as(out, part.shape, part.operand);
}

Status select_scatter(const TensorView& in, const TensorView& source, std::int64_t dim_given,
                      std::int64_t index, TensorView& out) {
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(dim_given, in.rank, &dim));
  Status done = resize(&out, in.shape());
  index = index < 0 ? index + in.sizes[dim] : index;
  if (!done.ok() || index < 0 || index >= in.sizes[dim] || source.rank + 1U != in.rank) {
    return done.ok() ? mismatch("what is put in does not fit " + to_text(in.shape())) : done;
  }
  const Part target = place_in(out, dim, index);
  if (target.shape != source.shape()) {
    return mismatch("what is put in does not fit " + to_text(in.shape()));
  }
  copy(out, whole(in));
  copy_into(target, whole(source));
  return {};
}

Status slice_scatter(const TensorView& in, const TensorView& source, std::int64_t dim,
                     std::optional<std::int64_t> start, std::optional<std::int64_t> end, std::int64_t step,
                     TensorView& out) {
  Part target;
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  SLIPWAY_RETURN_IF_ERROR(slice_of(out, dim, start, end, step, &target));
  if (target.shape != source.shape()) {
    return mismatch("what is put in does not fit the slice of " + to_text(in.shape()));
  }
  copy(out, whole(in));
  copy_into(target, whole(source));
  return {};
}

constexpr KernelEntry kConcatenationTable[] = {
    {"aten::cat.out", typed<cat>},
    {"aten::narrow_copy.out", typed<narrow_copy>},
    {"aten::repeat.out", typed<repeat>},
    {"aten::select_copy.int_out", typed<select_copy>},
    {"aten::select_scatter.out", typed<select_scatter>, Sharing::kFirst},
    {"aten::slice_copy.Tensor_out", typed<slice_copy>},
    {"aten::slice_scatter.out", typed<slice_scatter>, Sharing::kFirst},
    {"aten::split_copy.Tensor_out", split_copy, 4},
    {"aten::split_with_sizes_copy.out", split_with_sizes, 4},
    {"aten::stack.out", typed<stack>},
    {"aten::unbind_copy.int_out", typed<unbind_copy>},
};

}  // namespace

const KernelTable kConcatenationKernels = kConcatenationTable;

}  // namespace slipway::lean
