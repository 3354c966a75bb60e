// Padding with what the image holds itself.
#include <algorithm>

#include "lean/kernels/tables.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// Padding by looking back into the image: mirrored without the edge, or the edge again.
template <bool Mirror, std::size_t Dims>
Status pad(Arguments& arguments) {
  const View& in = arguments.tensor(0);
  const std::vector<std::int64_t> padding = arguments.integers(1);
  View& out = arguments.tensor(2);
  if (!arguments.fault().ok()) {
    return {};
  }
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
  const Status resized = resize(&out, shape);
  if (!resized.ok()) {
    return resized;
  }
  const auto in_steps = in.strides();
  const auto out_steps = out.strides();
  const std::size_t size = size_of(out.dtype);
  std::array<std::int64_t, kMostDims> place{};
  for (std::size_t i = 0, count = out.count(); i < count; ++i) {
    std::int64_t from = 0;
    std::int64_t to = 0;
    for (std::size_t d = 0; d < in.rank; ++d) {
      std::int64_t at = place[d];
      if (d + Dims >= in.rank) {
        at -= padding[2 * (in.rank - 1U - d)];
        const std::int64_t end = in.sizes[d] - 1;
        at = Mirror ? (at < 0 ? -at : at > end ? 2 * end - at : at) : std::clamp<std::int64_t>(at, 0, end);
      }
      from += at * in_steps[d];
      to += place[d] * out_steps[d];
    }
    std::copy_n(in.data + static_cast<std::size_t>(from) * size, size,
                out.data + static_cast<std::size_t>(to) * size);
    for (std::size_t d = out.rank; d-- > 0;) {
      if (++place[d] < out.sizes[d]) {
        break;
      }
      place[d] = 0;
    }
  }
  return {};
}

constexpr KernelEntry kTable[] = {
    {"aten::reflection_pad1d.out", pad<true, 1>, 3},   {"aten::reflection_pad2d.out", pad<true, 2>, 3},
    {"aten::reflection_pad3d.out", pad<true, 3>, 3},   {"aten::replication_pad1d.out", pad<false, 1>, 3},
    {"aten::replication_pad2d.out", pad<false, 2>, 3}, {"aten::replication_pad3d.out", pad<false, 3>, 3},
};

}  // namespace

const KernelEntry* pad_kernels(std::size_t* count) {
  return entries_of(kTable, count);
}

}  // namespace slipway::lean
