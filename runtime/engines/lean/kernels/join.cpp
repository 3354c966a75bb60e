// Operators that put tensors together, take them apart, repeat them or put something around them.
#include <algorithm>

#include "lean/kernels/tables.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// The part of `view` that holds `length` elements of dimension `dim` from `start` on. Parts of other memory
// orders keep their order: steps are the whole tensor's, so the result may be walked, not resized.
struct Part {
  Operand operand;
  Shape shape;
};

Part part_of(const View& view, std::size_t dim, std::int64_t start, std::int64_t length) {
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

// Writes `in` into the part of `out` that `target` describes: elements one by one, converted where the types
// differ.
void copy_into(const Part& target, const Operand& in) {
  const std::size_t rank = target.shape.size();
  std::array<std::int64_t, kMostDims> place{};
  for (const std::int64_t size : target.shape) {
    if (size == 0) {
      return;
    }
  }
  const std::int64_t row = rank == 0 ? 1 : target.shape[rank - 1];
  const std::int64_t to_step = rank == 0 ? 1 : target.operand.steps[rank - 1];
  const std::int64_t from_step = rank == 0 ? 1 : in.steps[rank - 1];
  for (;;) {
    std::int64_t to = 0;
    std::int64_t from = 0;
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      to += place[d] * target.operand.steps[d];
      from += place[d] * in.steps[d];
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
    while (d > 0 && ++place[d - 1] == target.shape[d - 1]) {
      place[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

// aten::cat.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out)
Status cat(Arguments& arguments) {
  std::vector<View*> tensors = arguments.tensors(0);
  View& out = arguments.tensor(2);
  // Empty one-dimensional tensors are left out, whatever the others' shape.
  tensors.erase(std::remove_if(tensors.begin(), tensors.end(),
                               [](const View* view) {
                                 return view == nullptr || (view->rank == 1 && view->sizes[0] == 0);
                               }),
                tensors.end());
  if (!arguments.fault().ok() || tensors.empty()) {
    return {};
  }
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(arguments.integer(1), tensors[0]->rank, &dim);
  if (!wrapped.ok()) {
    return wrapped;
  }
  Shape shape = tensors[0]->shape();
  shape[dim] = 0;
  for (const View* view : tensors) {
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

// aten::stack.out(Tensor[] tensors, int dim=0, *, Tensor(a!) out)
Status stack(Arguments& arguments) {
  const std::vector<View*> tensors = arguments.tensors(0);
  View& out = arguments.tensor(2);
  if (!arguments.fault().ok() || tensors.empty() || tensors[0] == nullptr) {
    return {};
  }
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(arguments.integer(1), tensors[0]->rank + 1U, &dim);
  if (!wrapped.ok()) {
    return wrapped;
  }
  Shape shape = tensors[0]->shape();
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), static_cast<std::int64_t>(tensors.size()));
  const Status resized = resize(&out, shape);
  for (std::size_t i = 0; resized.ok() && i < tensors.size(); ++i) {
    if (tensors[i] == nullptr || tensors[i]->shape() != tensors[0]->shape()) {
      return mismatch("tensors of different shapes cannot be stacked");
    }
    Operand operand = whole(*tensors[i]);
    std::copy_backward(operand.steps.begin() + static_cast<std::ptrdiff_t>(dim), operand.steps.end() - 1,
                       operand.steps.end());
    operand.steps[dim] = 0;
    copy_into(part_of(out, dim, static_cast<std::int64_t>(i), 1), operand);
  }
  return resized;
}

// Parts of the given lengths, one output each.
Status split(Arguments& arguments, std::size_t dim, const std::vector<std::int64_t>& lengths,
             std::size_t out_at) {
  const View& in = arguments.tensor(0);
  const std::vector<View*> outs = arguments.tensors(out_at);
  if (outs.size() != lengths.size()) {
    return mismatch("the parts are not as many as the outputs");
  }
  std::int64_t start = 0;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (outs[i] == nullptr || lengths[i] < 0 || lengths[i] > in.sizes[dim] - start) {
      return mismatch("the parts are larger than " + to_text(in.shape()));
    }
    const Part part = part_of(in, dim, start, lengths[i]);
    const Status resized = resize(outs[i], part.shape);
    if (!resized.ok()) {
      return resized;
    }
    copy(*outs[i], part.operand);
    start += lengths[i];
  }
  return {};
}

// aten::split_copy.Tensor_out(Tensor self, SymInt split_size, int dim=0, *, Tensor(a!)[] out)
Status split_copy(Arguments& arguments) {
  const View& in = arguments.tensor(0);
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

// aten::unbind_copy.int_out(Tensor self, int dim=0, *, Tensor(a!)[] out)
Status unbind_copy(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const std::vector<View*> outs = arguments.tensors(2);
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(arguments.integer(1), in.rank, &dim);
  if (!wrapped.ok() || static_cast<std::int64_t>(outs.size()) != in.sizes[dim]) {
    return wrapped.ok() ? mismatch("the parts are not as many as the outputs") : wrapped;
  }
  for (std::size_t i = 0; i < outs.size(); ++i) {
    Part part = part_of(in, dim, static_cast<std::int64_t>(i), 1);
    part.shape.erase(part.shape.begin() + static_cast<std::ptrdiff_t>(dim));
    std::copy(part.operand.steps.begin() + static_cast<std::ptrdiff_t>(dim) + 1, part.operand.steps.end(),
              part.operand.steps.begin() + static_cast<std::ptrdiff_t>(dim));
    const Status resized =
        outs[i] == nullptr ? mismatch("an output is missing") : resize(outs[i], part.shape);
    if (!resized.ok()) {
      return resized;
    }
    copy(*outs[i], part.operand);
  }
  return {};
}

// aten::repeat.out(Tensor self, SymInt[] repeats, *, Tensor(a!) out)
Status repeat(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(2);
  const std::vector<std::int64_t> times = arguments.integers(1);
  if (!arguments.fault().ok()) {
    return {};
  }
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

// aten::roll.out(Tensor self, SymInt[1] shifts, int[1] dims=[], *, Tensor(a!) out)
Status roll(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(3);
  const std::vector<std::int64_t> shifts = arguments.integers(1);
  const std::vector<std::int64_t> dims = arguments.integers(2);
  if (shifts.size() != dims.size() || shifts.size() != 1) {
    return mismatch("only one dimension at a time can be rolled");
  }
  std::size_t dim = 0;
  Status done = wrap_dim(dims[0], in.rank, &dim);
  if (done.ok()) {
    done = resize(&out, in.shape());
  }
  const std::int64_t size = in.sizes[dim];
  if (!done.ok() || size == 0) {
    return done;
  }
  const std::int64_t shift = (shifts[0] % size + size) % size;
  copy_into(part_of(out, dim, shift, size - shift), whole(in));
  copy_into(part_of(out, dim, 0, shift), part_of(in, dim, size - shift, shift).operand);
  return {};
}

// aten::constant_pad_nd.out(Tensor self, SymInt[] pad, Scalar value=0, *, Tensor(a!) out): pairs from the
// last dimension on; negative ones cut.
Status constant_pad(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(3);
  const std::vector<std::int64_t> pad = arguments.integers(1);
  const double value = arguments.real(2);
  if (!arguments.fault().ok()) {
    return {};
  }
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
  Operand number;
  number.data = reinterpret_cast<const std::uint8_t*>(&value);
  number.dtype = DType::kFloat64;
  copy(out, number);
  const auto strides = out.strides();
  target.operand.dtype = out.dtype;
  target.operand.data = out.data;
  for (std::size_t i = 0; i < out.rank; ++i) {
    target.operand.steps[i] = strides[i];
    target.operand.data += before[i] * strides[i] * static_cast<std::int64_t>(size_of(out.dtype));
  }
  copy_into(target, source);
  return {};
}

// aten::pixel_shuffle.out(Tensor self, int upscale_factor, *, Tensor(a!) out); unshuffle is its inverse.
template <bool Inverse>
Status pixel_shuffle(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(2);
  const std::int64_t factor = arguments.integer(1);
  if (!arguments.fault().ok()) {
    return {};
  }
  if (in.rank < 3 || in.rank + 2U > kMostDims || factor <= 0 || factor > INT16_MAX) {
    return mismatch("cannot shuffle the pixels of " + to_text(in.shape()));
  }
  const std::size_t c = in.rank - 3U;
  const View& fine = Inverse ? in : out;    // H*r, W*r
  const View& coarse = Inverse ? out : in;  // C*r*r
  Shape shape = in.shape();
  const bool divides =
      Inverse ? shape[c + 1] % factor == 0 && shape[c + 2] % factor == 0 : shape[c] % (factor * factor) == 0;
  if (!divides) {
    return mismatch("cannot shuffle the pixels of " + to_text(in.shape()) + " by " + std::to_string(factor));
  }
  shape[c] = Inverse ? shape[c] * factor * factor : shape[c] / (factor * factor);
  shape[c + 1] = Inverse ? shape[c + 1] / factor : shape[c + 1] * factor;
  shape[c + 2] = Inverse ? shape[c + 2] / factor : shape[c + 2] * factor;
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  const auto fine_steps = fine.strides();
  const auto coarse_steps = coarse.strides();
  Operand a;
  Operand b;
  Shape walked(fine.sizes.begin(), fine.sizes.begin() + static_cast<std::ptrdiff_t>(c));
  for (std::size_t i = 0; i < c; ++i) {
    a.steps[i] = fine_steps[i];
    b.steps[i] = coarse_steps[i];
  }
  // Channel, then rows and their subpixels, then columns and theirs.
  const std::int64_t sizes[] = {fine.sizes[c], coarse.sizes[c + 1], factor, coarse.sizes[c + 2], factor};
  const std::int64_t fine_walk[] = {fine_steps[c], fine_steps[c + 1] * factor, fine_steps[c + 1],
                                    fine_steps[c + 2] * factor, fine_steps[c + 2]};
  const std::int64_t coarse_walk[] = {coarse_steps[c] * factor * factor, coarse_steps[c + 1],
                                      coarse_steps[c] * factor, coarse_steps[c + 2], coarse_steps[c]};
  for (std::size_t i = 0; i < 5; ++i) {
    a.steps[c + i] = fine_walk[i];
    b.steps[c + i] = coarse_walk[i];
    walked.push_back(sizes[i]);
  }
  a.data = fine.data;
  a.dtype = fine.dtype;
  b.data = coarse.data;
  b.dtype = coarse.dtype;
  copy_into({Inverse ? b : a, walked}, Inverse ? a : b);
  return {};
}

// aten::tril.out(Tensor self, SymInt diagonal=0, *, Tensor(a!) out)
Status tril(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  View& out = arguments.tensor(2);
  const std::int64_t diagonal = arguments.integer(1);
  if (in.rank < 2) {
    return mismatch("a tensor of " + to_text(in.shape()) + " has no triangle");
  }
  const Status resized = resize(&out, in.shape());
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  const std::int64_t zero = 0;
  Operand nothing;
  nothing.data = reinterpret_cast<const std::uint8_t*>(&zero);
  nothing.dtype = DType::kInt64;
  copy(out, nothing);
  const std::int64_t rows = in.sizes[in.rank - 2U];
  const std::int64_t columns = in.sizes[in.rank - 1U];
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t kept =
        std::clamp<std::int64_t>(row + std::clamp(diagonal, -rows, columns) + 1, 0, columns);
    Part target = part_of(out, out.rank - 2U, row, 1);
    target.shape[out.rank - 1U] = kept;
    copy_into(target, part_of(in, in.rank - 2U, row, 1).operand);
  }
  return {};
}

// aten::select_scatter.out(Tensor self, Tensor src, int dim, SymInt index, *, Tensor(a!) out)
Status select_scatter(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const View& source = arguments.tensor(1);
  View& out = arguments.tensor(4);
  std::size_t dim = 0;
  Status done = wrap_dim(arguments.integer(2), in.rank, &dim);
  if (done.ok()) {
    done = resize(&out, in.shape());
  }
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
  const View& in = arguments.tensor(0);
  const View& source = arguments.tensor(1);
  View& out = arguments.tensor(6);
  std::size_t dim = 0;
  Status done = wrap_dim(arguments.integer(2), in.rank, &dim);
  if (done.ok()) {
    done = resize(&out, in.shape());
  }
  if (!done.ok()) {
    return done;
  }
  const std::int64_t size = in.sizes[dim];
  const auto bound = [size](std::optional<std::int64_t> wanted, std::int64_t missing) {
    const std::int64_t found = wanted.value_or(missing);
    return std::clamp<std::int64_t>(found < 0 ? found + size : found, 0, size);
  };
  const std::int64_t start = bound(arguments.optional_integer(3), 0);
  const std::int64_t end = std::max(start, bound(arguments.optional_integer(4), size));
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

constexpr KernelEntry kTable[] = {
    {"aten::cat.out", cat, 3},
    {"aten::constant_pad_nd.out", constant_pad, 4},
    {"aten::pixel_shuffle.out", pixel_shuffle<false>, 3},
    {"aten::pixel_unshuffle.out", pixel_shuffle<true>, 3},
    {"aten::repeat.out", repeat, 3},
    {"aten::roll.out", roll, 4},
    {"aten::select_scatter.out", select_scatter, 5},
    {"aten::slice_scatter.out", slice_scatter, 7},
    {"aten::split_copy.Tensor_out", split_copy, 4},
    {"aten::split_with_sizes_copy.out", split_with_sizes, 4},
    {"aten::stack.out", stack, 3},
    {"aten::tril.out", tril, 3},
    {"aten::unbind_copy.int_out", unbind_copy, 3},
};

}  // namespace

const KernelEntry* join_kernels(std::size_t* count) {
  return entries_of(kTable, count);
}

}  // namespace slipway::lean
