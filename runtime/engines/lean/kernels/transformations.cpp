// Operators that put elements in another order, take some of them, pad them, or put tensors together.
#include <algorithm>

#include "lean/kernels/kernel.h"
#include "lean/kernels/moves.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

Status run_move(Move& move, const TensorView& in, TensorView& out) {
  if (in.dtype != out.dtype) {
    return mismatch("elements are moved into another type");
  }
  move.prepare(size_of(in.dtype));
  move.run(out.data, in.data);
  return {};
}

Status roll(const TensorView& in, const std::vector<std::int64_t>& shifts,
            const std::vector<std::int64_t>& dims, TensorView& out) {
  if (shifts.size() != dims.size() || shifts.size() != 1) {
    return mismatch("only one dimension at a time can be rolled");
  }
  SLIPWAY_TRY(const std::size_t dim, wrap_dim(dims[0], in.rank));
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  const std::int64_t size = in.sizes[dim];
  const std::int64_t shift = size == 0 ? 0 : (shifts[0] % size + size) % size;
  copy(part_of(out, dim, shift, size - shift), whole(in));
  copy(part_of(out, dim, 0, shift), part_of(in, dim, size - shift, shift).operand);
  return {};
}

Status flip(const TensorView& in, const std::vector<std::int64_t>& dims, TensorView& out) {
  Operand operand = whole(in);
  for (const std::int64_t item : dims) {
    SLIPWAY_TRY(const std::size_t dim, wrap_dim(item, in.rank));
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
  Move move;
  const auto add = [&move](std::int64_t size, std::int64_t fine_step, std::int64_t coarse_step) {
    move.add(size, Inverse ? coarse_step : fine_step, Inverse ? fine_step : coarse_step);
  };
  for (std::size_t i = 0; i <= c; ++i) {
    add(fine.sizes[i], fine_steps[i], coarse_steps[i] * (i == c ? factor * factor : 1));
  }
  // Rows and their subpixels, then columns and theirs.
  add(coarse.sizes[c + 1], fine_steps[c + 1] * factor, coarse_steps[c + 1]);
  add(factor, fine_steps[c + 1], coarse_steps[c] * factor);
  add(coarse.sizes[c + 2], fine_steps[c + 2] * factor, coarse_steps[c + 2]);
  add(factor, fine_steps[c + 2], coarse_steps[c]);
  return run_move(move, in, out);
}

Status tril(const TensorView& in, std::int64_t diagonal, TensorView& out) {
  if (in.rank < 2) {
    return mismatch("a tensor of " + to_text(in.shape()) + " has no triangle");
  }
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, in), out);
  fill(out, {0, 0, true});
  const std::int64_t rows = in.sizes[in.rank - 2U];
  const std::int64_t columns = in.sizes[in.rank - 1U];
  diagonal = std::clamp(diagonal, -rows, columns);
  const std::int64_t whole_rows = std::clamp<std::int64_t>(columns - 1 - diagonal, 0, rows);
  for (std::int64_t row = std::max<std::int64_t>(0, -diagonal); row < whole_rows; ++row) {
    Part target = part_of(out, out.rank - 2U, row, 1);
    target.shape[out.rank - 1U] = row + diagonal + 1;
    copy(target, part_of(in, in.rank - 2U, row, 1).operand);
  }
  copy(part_of(out, out.rank - 2U, whole_rows, rows - whole_rows),
       part_of(in, in.rank - 2U, whole_rows, 0).operand);
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
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, shape), out);  // rows without elements can be any many
  std::vector<std::vector<std::int64_t>> places(in.rank);
  for (std::size_t i = 0; i < Dims; ++i) {
    const std::size_t dim = in.rank - Dims + i;
    const std::int64_t end = in.sizes[dim] - 1;
    for (std::int64_t at = -padding[2 * (Dims - 1 - i)];
         static_cast<std::int64_t>(places[dim].size()) < shape[dim]; ++at) {
      places[dim].push_back(Mirror ? (at < 0     ? -at
                                      : at > end ? 2 * end - at
                                                 : at)
                                   : std::clamp<std::int64_t>(at, 0, end));
    }
  }
  pick_places(in, std::move(places), out);
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
    advance(&source, std::max<std::int64_t>(-front, 0) * source.steps[dim]);
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  fill(out, value);
  target.operand = whole(out);
  for (std::size_t i = 0; i < out.rank; ++i) {
    advance(&target.operand, before[i] * target.operand.steps[i]);
  }
  copy(target, source);
  return {};
}

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
  SLIPWAY_TRY(const std::size_t dim, wrap_dim(dim_given, tensors[0]->rank));
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
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  std::int64_t start = 0;
  for (const TensorView* view : tensors) {
    copy(part_of(out, dim, start, view->sizes[dim]), whole(*view));
    start += view->sizes[dim];
  }
  return {};
}

Status stack(const std::vector<TensorView*>& tensors, std::int64_t dim_given, TensorView& out) {
  if (tensors.empty() || tensors[0] == nullptr) {
    return {};
  }
  SLIPWAY_TRY(const std::size_t dim, wrap_dim(dim_given, tensors[0]->rank + 1U));
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

// aten::split_with_sizes_copy.out: parts of the given lengths, one output each.
Status split_with_sizes(const TensorView& in, const std::vector<std::int64_t>& lengths, Dim dim,
                        const std::vector<TensorView*>& outs) {
  if (outs.size() != lengths.size()) {
    return mismatch("the parts are not as many as the outputs");
  }
  std::int64_t start = 0;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (outs[i] == nullptr || lengths[i] < 0 || lengths[i] > in.sizes[dim.at] - start) {
      return mismatch("the parts are larger than " + to_text(in.shape()));
    }
    const Part part = part_of(in, dim.at, start, lengths[i]);
    SLIPWAY_RETURN_IF_ERROR(copy_as(*outs[i], part.shape, part.operand));
    start += lengths[i];
  }
  return {};
}

// As many as there are outputs, before they are counted out: a dimension beside an empty one can be any.
Status split_copy(const TensorView& in, std::int64_t size, Dim dim, const std::vector<TensorView*>& outs) {
  const std::int64_t all = in.sizes[dim.at];
  if (size <= 0 || (all == 0 ? 0 : (all - 1) / size + 1) != static_cast<std::int64_t>(outs.size())) {
    return mismatch(size <= 0 ? "the parts have no size" : "the parts are not as many as the outputs");
  }
  std::vector<std::int64_t> lengths;
  for (std::int64_t left = all; left > 0; left -= size) {
    lengths.push_back(std::min(size, left));
  }
  return split_with_sizes(in, lengths, dim, outs);
}

Status unbind_copy(const TensorView& in, Dim dim, const std::vector<TensorView*>& outs) {
  if (static_cast<std::int64_t>(outs.size()) != in.sizes[dim.at]) {
    return mismatch("the parts are not as many as the outputs");
  }
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const Part part = place_in(in, dim.at, static_cast<std::int64_t>(i));
    SLIPWAY_RETURN_IF_ERROR(outs[i] == nullptr ? mismatch("an output is missing")
                                               : copy_as(*outs[i], part.shape, part.operand));
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
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  // Every dimension is two: which repetition, and where in it.
  const auto in_steps = in.strides();
  const auto out_steps = out.strides();
  Move move;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::int64_t size = i < added ? 1 : in.sizes[i - added];
    move.add(times[i], out_steps[i] * size, 0);
    move.add(size, out_steps[i], i < added ? 0 : in_steps[i - added]);
  }
  return run_move(move, in, out);
}

Status select_copy(const TensorView& in, Dim dim, std::int64_t index, TensorView& out) {
  index = index < 0 ? index + in.sizes[dim.at] : index;
  if (index < 0 || index >= in.sizes[dim.at]) {
    return mismatch("index " + std::to_string(index) + " is outside dimension " + std::to_string(dim.at) +
                    " of " + to_text(in.shape()));
  }
  const Part part = place_in(in, dim.at, index);
  return copy_as(out, part.shape, part.operand);
}

// Bounds of a slice as Python has them: from the end when negative, cut to what is there.
std::int64_t bound(std::optional<std::int64_t> index, std::int64_t missing, std::int64_t size) {
  std::int64_t found = index.value_or(missing);
  found = found < 0 ? found + size : found;
  return std::clamp<std::int64_t>(found, 0, size);
}

Result<Part> slice_of(const TensorView& view, Dim dim, std::optional<std::int64_t> start_given,
                      std::optional<std::int64_t> end_given, std::int64_t step) {
  const std::int64_t size = view.sizes[dim.at];
  const std::int64_t start = bound(start_given, 0, size);
  const std::int64_t end = std::max(start, bound(end_given, size, size));
  if (step <= 0) {
    return mismatch("a slice has the step " + std::to_string(step));
  }
  Part part = part_of(view, dim.at, start, end == start ? 0 : (end - start - 1) / step + 1);
  part.operand.steps[dim.at] *= step;
  return part;
}

Status slice_copy(const TensorView& in, Dim dim, std::optional<std::int64_t> start,
                  std::optional<std::int64_t> end, std::int64_t step, TensorView& out) {
  SLIPWAY_TRY(const Part part, slice_of(in, dim, start, end, step));
  return copy_as(out, part.shape, part.operand);
}

Status narrow_copy(const TensorView& in, Dim dim, std::int64_t start, std::int64_t length, TensorView& out) {
  const std::int64_t size = in.sizes[dim.at];
  start = start < 0 ? start + size : start;
  if (start < 0 || length < 0 || start > size || length > size - start) {
    return mismatch("cannot take " + std::to_string(length) + " from " + std::to_string(start) + " on of " +
                    to_text(in.shape()));
  }
  const Part part = part_of(in, dim.at, start, length);
  return copy_as(out, part.shape, part.operand);
}

// A copy of `in` with `source` in this part of `out`, which has in's shape.
Status put_into_part(const TensorView& in, const TensorView& source, const Part& part, TensorView& out) {
  if (part.shape != source.shape()) {
    return mismatch("what is put in does not fit " + to_text(in.shape()));
  }
  copy(out, whole(in));
  copy(part, whole(source));
  return {};
}

Status select_scatter(const TensorView& in, const TensorView& source, Dim dim, std::int64_t index,
                      TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  index = index < 0 ? index + in.sizes[dim.at] : index;
  if (index < 0 || index >= in.sizes[dim.at]) {
    return mismatch("what is put in does not fit " + to_text(in.shape()));
  }
  return put_into_part(in, source, place_in(out, dim.at, index), out);
}

Status slice_scatter(const TensorView& in, const TensorView& source, Dim dim,
                     std::optional<std::int64_t> start, std::optional<std::int64_t> end, std::int64_t step,
                     TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  SLIPWAY_TRY(const Part target, slice_of(out, dim, start, end, step));
  return put_into_part(in, source, target, out);
}

}  // namespace

constexpr KernelTable kTransformationKernels = {
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
    {"aten::cat.out", typed<cat>},
    {"aten::narrow_copy.out", typed<narrow_copy>},
    {"aten::repeat.out", typed<repeat>},
    {"aten::select_copy.int_out", typed<select_copy>},
    {"aten::select_scatter.out", typed<select_scatter>, Sharing::kFirst},
    {"aten::slice_copy.Tensor_out", typed<slice_copy>},
    {"aten::slice_scatter.out", typed<slice_scatter>, Sharing::kFirst},
    {"aten::split_copy.Tensor_out", typed<split_copy>},
    {"aten::split_with_sizes_copy.out", typed<split_with_sizes>},
    {"aten::stack.out", typed<stack>},
    {"aten::unbind_copy.int_out", typed<unbind_copy>},
};

}  // namespace slipway::lean
