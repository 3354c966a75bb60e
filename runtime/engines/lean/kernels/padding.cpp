// Padding: with a number, or with what the image holds itself.
#include <algorithm>

#include "lean/kernels/strided_copy.h"
#include "lean/kernels/tables.h"

namespace slipway::lean {
namespace {

// Padding by looking back into the image: mirrored without the edge, or the edge again.
template <bool Mirror, std::size_t Dims>
Status pad(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const std::vector<std::int64_t> padding = arguments.integers(1);
  TensorView& out = arguments.tensor(2);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
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

// aten::constant_pad_nd.out(Tensor self, SymInt[] pad, Scalar value=0, *, Tensor(a!) out): pairs from the
// last dimension on; negative ones cut.
Status constant_pad(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(3);
  const std::vector<std::int64_t> pad = arguments.integers(1);
  const Number value = arguments.number(2);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
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

constexpr KernelEntry kPaddingTable[] = {
    {"aten::constant_pad_nd.out", constant_pad, 4},    {"aten::reflection_pad1d.out", pad<true, 1>, 3},
    {"aten::reflection_pad2d.out", pad<true, 2>, 3},   {"aten::reflection_pad3d.out", pad<true, 3>, 3},
    {"aten::replication_pad1d.out", pad<false, 1>, 3}, {"aten::replication_pad2d.out", pad<false, 2>, 3},
    {"aten::replication_pad3d.out", pad<false, 3>, 3},
};

}  // namespace

KernelTable padding_kernels() {
  return kPaddingTable;
}

}  // namespace slipway::lean
