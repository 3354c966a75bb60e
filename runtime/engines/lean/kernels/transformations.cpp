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
  copy_into(part_of(out, dim, shift, size - shift), whole(in));
  copy_into(part_of(out, dim, 0, shift), part_of(in, dim, size - shift, shift).operand);
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
  copy_into({Inverse ? b : a, shared_shape}, Inverse ? a : b);
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
  copy_into(target, source);
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

}  // namespace slipway::lean
