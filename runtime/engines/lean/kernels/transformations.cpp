// Operators that put elements in another order, leave some of them out, or put others around them.
#include <algorithm>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

Status roll(const TensorView& in, const std::vector<std::int64_t>& shifts,
            const std::vector<std::int64_t>& dims, TensorView& out) {
  if (shifts.size() != dims.size() || shifts.size() != 1) {
    return mismatch("only one dimension at a time can be rolled");
  }
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(dims[0], in.rank, &dim));
  Status done = resize(&out, in.shape());
  const std::int64_t size = in.sizes[dim];
  if (!done.ok() || size == 0) {
    return done;
  }
  const std::int64_t shift = (shifts[0] % size + size) % size;
  copy(part_of(out, dim, shift, size - shift), whole(in));
  copy(part_of(out, dim, 0, shift), part_of(in, dim, size - shift, shift).operand);
  return {};
}

Status flip(const TensorView& in, const std::vector<std::int64_t>& dims, TensorView& out) {
  Operand operand = whole(in);
  for (const std::int64_t item : dims) {
    std::size_t dim = 0;
    SLIPWAY_RETURN_IF_ERROR(wrap_dim(item, in.rank, &dim));
    advance(&operand, std::max<std::int64_t>(in.sizes[dim] - 1, 0) * operand.steps[dim]);
    operand.steps[dim] = -operand.steps[dim];
  }
  return copy_as(out, in.shape(), operand);
}

// aten::pixel_shuffle.out(Tensor self, int upscale_factor, *, Tensor(a!) out); unshuffle is its inverse.
template <bool Inverse>
Status pixel_shuffle(const TensorView& in, std::int64_t factor, TensorView& out) {
  if (in.rank < 3 || in.rank + 2U > kMostDims || factor <= 0 || factor > INT16_MAX) {
    return mismatch("cannot shuffle the pixels of " + to_text(in.shape()));
  }
  const std::size_t c = in.rank - 3U;
  const TensorView& fine = Inverse ? in : out;    // H*r, W*r
  const TensorView& coarse = Inverse ? out : in;  // C*r*r
  Shape shape = in.shape();
  const bool divides =
      Inverse ? shape[c + 1] % factor == 0 && shape[c + 2] % factor == 0 : shape[c] % (factor * factor) == 0;
  if (!divides) {
    return mismatch("cannot shuffle the pixels of " + to_text(in.shape()) + " by " + std::to_string(factor));
  }
  shape[c] = Inverse ? shape[c] * factor * factor : shape[c] / (factor * factor);
  shape[c + 1] = Inverse ? shape[c + 1] / factor : shape[c + 1] * factor;
  shape[c + 2] = Inverse ? shape[c + 2] / factor : shape[c + 2] * factor;
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  const auto fine_steps = fine.strides();
  const auto coarse_steps = coarse.strides();
  Operand a;
  Operand b;
  Shape shared_shape(fine.sizes.begin(), fine.sizes.begin() + static_cast<std::ptrdiff_t>(c));
  for (std::size_t i = 0; i < c; ++i) {
    a.steps[i] = fine_steps[i];
    b.steps[i] = coarse_steps[i];
  }
  // Channel, then rows and their subpixels, then columns and theirs.
  const std::int64_t sizes[] = {fine.sizes[c], coarse.sizes[c + 1], factor, coarse.sizes[c + 2], factor};
  const std::int64_t fine_strides[] = {fine_steps[c], fine_steps[c + 1] * factor, fine_steps[c + 1],
                                       fine_steps[c + 2] * factor, fine_steps[c + 2]};
  const std::int64_t coarse_strides[] = {coarse_steps[c] * factor * factor, coarse_steps[c + 1],
                                         coarse_steps[c] * factor, coarse_steps[c + 2], coarse_steps[c]};
  for (std::size_t i = 0; i < 5; ++i) {
    a.steps[c + i] = fine_strides[i];
    b.steps[c + i] = coarse_strides[i];
    shared_shape.push_back(sizes[i]);
  }
  a.data = fine.data;
  a.dtype = fine.dtype;
  b.data = coarse.data;
  b.dtype = coarse.dtype;
  copy(Part{Inverse ? b : a, shared_shape}, Inverse ? a : b);
  return {};
}

Status tril(const TensorView& in, std::int64_t diagonal, TensorView& out) {
  if (in.rank < 2) {
    return mismatch("a tensor of " + to_text(in.shape()) + " has no triangle");
  }
  const Status resized = resize(&out, in.shape());
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  fill(out, {0, 0, true});
  const std::int64_t rows = in.sizes[in.rank - 2U];
  const std::int64_t columns = in.sizes[in.rank - 1U];
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t kept =
        std::clamp<std::int64_t>(row + std::clamp(diagonal, -rows, columns) + 1, 0, columns);
    Part target = part_of(out, out.rank - 2U, row, 1);
    target.shape[out.rank - 1U] = kept;
    copy(target, part_of(in, in.rank - 2U, row, 1).operand);
  }
  return {};
}

// Padding by looking back into the image: mirrored without the edge, or the edge again.
template <bool Mirror, std::size_t Dims>
Status pad(const TensorView& in, const std::vector<std::int64_t>& padding, TensorView& out) {
  if (padding.size() != 2 * Dims || in.rank < Dims || in.dtype != out.dtype) {
    return mismatch("the padding does not fit " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  for (std::size_t i = 0; i < Dims; ++i) {
    const std::size_t dim = in.rank - 1U - i;
    const std::int64_t size = in.sizes[dim];
    const std::int64_t most = Mirror ? size - 1 : INT64_MAX / 4;
    if (padding[2 * i] < 0 || padding[2 * i + 1] < 0 || padding[2 * i] > most || padding[2 * i + 1] > most ||
        size == 0) {
      return mismatch("the padding does not fit " + to_text(in.shape()));
    }
    shape[dim] += padding[2 * i] + padding[2 * i + 1];
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  const auto in_steps = in.strides();
  const auto out_steps = out.strides();
  const std::size_t size = size_of(out.dtype);
  std::array<std::int64_t, kMostDims> position{};
  for (std::size_t i = 0, count = out.count(); i < count; ++i) {
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (std::size_t d = 0; d < in.rank; ++d) {
      std::int64_t at = position[d];
      if (d + Dims >= in.rank) {
        at -= padding[2 * (in.rank - 1U - d)];
        const std::int64_t end = in.sizes[d] - 1;
        at = Mirror ? (at < 0 ? -at : at > end ? 2 * end - at : at) : std::clamp<std::int64_t>(at, 0, end);
      }
      from += at * in_steps[d];
      to += position[d] * out_steps[d];
    }
    std::copy_n(in.data + static_cast<std::size_t>(from) * size, size,
                out.data + static_cast<std::size_t>(to) * size);
    for (std::size_t d = out.rank; d-- > 0;) {
      if (++position[d] < out.sizes[d]) {
        break;
      }
      position[d] = 0;
    }
  }
  return {};
}

// Pairs from the last dimension on; negative ones cut.
Status constant_pad(const TensorView& in, const std::vector<std::int64_t>& pad, Number value,
                    TensorView& out) {
  if (pad.size() % 2 != 0 || pad.size() / 2 > in.rank) {
    return mismatch("the padding does not fit " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  Operand source = whole(in);
  Part target;
  target.shape = shape;
  const std::int64_t element = in.data == nullptr ? 0 : static_cast<std::int64_t>(size_of(in.dtype));
  std::array<std::int64_t, kMostDims> before{};
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::size_t dim = in.rank - 1U - i;
    const std::int64_t front = pad[2 * i];
    const std::int64_t back = pad[2 * i + 1];
    shape[dim] += front + back;
    before[dim] = std::max<std::int64_t>(front, 0);
    target.shape[dim] += std::min<std::int64_t>(front, 0) + std::min<std::int64_t>(back, 0);
    if (shape[dim] < 0 || target.shape[dim] < 0) {
      return mismatch("the padding takes more than " + to_text(in.shape()) + " has");
    }
    source.data += std::max<std::int64_t>(-front, 0) * source.steps[dim] * element;
  }
  const Status resized = resize(&out, shape);
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  fill(out, value);
  const auto strides = out.strides();
  target.operand.dtype = out.dtype;
  target.operand.data = out.data;
  for (std::size_t i = 0; i < out.rank; ++i) {
    target.operand.steps[i] = strides[i];
    target.operand.data += before[i] * strides[i] * static_cast<std::int64_t>(size_of(out.dtype));
  }
  copy(target, source);
  return {};
}

constexpr KernelEntry kTransformationTable[] = {
    {"aten::constant_pad_nd.out", typed<constant_pad>},
    {"aten::flip.out", typed<flip>},
    {"aten::pixel_shuffle.out", typed<pixel_shuffle<false>>},
    {"aten::pixel_unshuffle.out", typed<pixel_shuffle<true>>},
    {"aten::reflection_pad1d.out", typed<pad<true, 1>>},
    {"aten::reflection_pad2d.out", typed<pad<true, 2>>},
    {"aten::reflection_pad3d.out", typed<pad<true, 3>>},
    {"aten::replication_pad1d.out", typed<pad<false, 1>>},
    {"aten::replication_pad2d.out", typed<pad<false, 2>>},
    {"aten::replication_pad3d.out", typed<pad<false, 3>>},
    {"aten::roll.out", typed<roll>},
    {"aten::tril.out", typed<tril>},
};

}  // namespace

const KernelTable kTransformationKernels = kTransformationTable;

// Operators that put tensors together, take them apart or repeat them, and slices.

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
    copy(part_of(out, dim, start, length), whole(*tensors[i]));
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
    copy(place_in(out, dim, static_cast<std::int64_t>(i)), whole(*tensors[i]));
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
  copy(target, source);
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
  copy(target, whole(source));
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
  copy(target, whole(source));
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
