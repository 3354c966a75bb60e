#include "lean/kernels/strided_copy.h"

#include <algorithm>

#include "lean/kernels/moves.h"

namespace slipway::lean {

Part part_of(const TensorView& view, std::size_t dim, std::int64_t start, std::int64_t length) {
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

void copy_into(const Part& target, const Operand& in) {
  const std::size_t rank = target.shape.size();
  std::array<std::int64_t, kMostDims> position{};
  for (const std::int64_t size : target.shape) {
    if (size == 0) {
      return;
    }
  }
  if (in.dtype == target.operand.dtype) {
    Move move;
    for (std::size_t d = 0; d < rank; ++d) {
      move.add(target.shape[d], target.operand.steps[d], in.steps[d]);
    }
    move.prepare(size_of(in.dtype));
    // const_cast: the part is of an output.
    move.run(const_cast<std::uint8_t*>(target.operand.data), in.data);
    return;
  }
  const std::int64_t row = rank == 0 ? 1 : target.shape[rank - 1];
  const std::int64_t to_step = rank == 0 ? 1 : target.operand.steps[rank - 1];
  const std::int64_t from_step = rank == 0 ? 1 : in.steps[rank - 1];
  for (;;) {
    std::int64_t to = 0;
    std::int64_t from = 0;
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      to += position[d] * target.operand.steps[d];
      from += position[d] * in.steps[d];
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
    while (d > 0 && ++position[d - 1] == target.shape[d - 1]) {
      position[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

void advance(Operand* operand, std::int64_t elements) {
  // A tensor without elements may have no memory to be ahead in.
  if (operand->data != nullptr) {
    operand->data += elements * static_cast<std::int64_t>(size_of(operand->dtype));
  }
}

Status copy_as(TensorView& out, const Shape& shape, const Operand& operand) {
  const Status resized = resize(&out, shape);
  if (resized.ok()) {
    copy(out, operand);
  }
  return resized;
}

}  // namespace slipway::lean
