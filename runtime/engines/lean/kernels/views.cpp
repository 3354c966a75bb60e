// Views of a tensor, as copies in the output's own memory order and element type.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// The elements keep their logical row-major order under another shape; one size may be -1.
Status view_copy(const TensorView& in, Shape shape, TensorView& out, Scratch& scratch) {
  settle_open_size(&shape, in.count());
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  if (out.count() != in.count() || out.dtype != in.dtype) {
    return mismatch("cannot view " + to_text(in.shape()) + " as " + to_text(shape));
  }
  if (!in.contiguous() || !out.contiguous()) {
    // Through row-major order: other memory orders do not survive a change of shape.
    std::uint8_t* rows = scratch.get(in.bytes());
    TensorView straight = in.in_rows(rows);
    copy(straight, whole(in));
    copy(out, whole(out.in_rows(rows)));
  } else if (out.data != in.data && in.bytes() != 0) {
    std::memmove(out.data, in.data, in.bytes());
  }
  return {};
}

Status unsqueeze_copy(const TensorView& in, std::int64_t dim_given, TensorView& out, Scratch& scratch) {
  SLIPWAY_TRY(const std::size_t dim, wrap_dim(dim_given, in.rank + 1U));
  Shape shape = in.shape();
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  return view_copy(in, shape, out, scratch);
}

Status squeeze_dims(const TensorView& in, const std::vector<std::int64_t>& dims, TensorView& out,
                    Scratch& scratch) {
  std::array<bool, kMostDims> gone{};
  for (const std::int64_t item : dims) {
    SLIPWAY_TRY(const std::size_t dim, in.rank == 0 ? Result<std::size_t>(0) : wrap_dim(item, in.rank));
    gone[dim] = in.rank != 0 && in.sizes[dim] == 1;
  }
  Shape shape;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (!gone[i]) {
      shape.push_back(in.sizes[i]);
    }
  }
  return view_copy(in, shape, out, scratch);
}
Status squeeze_dim(const TensorView& in, std::int64_t dim, TensorView& out, Scratch& scratch) {
  return squeeze_dims(in, {dim}, out, scratch);
}

Status permute_copy(const TensorView& in, const std::vector<std::int64_t>& dims, TensorView& out) {
  const Operand all = whole(in);
  Operand operand = all;
  Shape shape(in.rank);
  std::array<bool, kMostDims> seen{};
  for (std::size_t i = 0; i < dims.size() && i < in.rank; ++i) {
    SLIPWAY_TRY(const std::size_t dim, wrap_dim(dims[i], in.rank));
    seen[dim] = true;
    shape[i] = in.sizes[dim];
    operand.steps[i] = all.steps[dim];
  }
  if (dims.size() != in.rank ||
      !std::all_of(seen.begin(), seen.begin() + in.rank, [](bool x) { return x; })) {
    return mismatch("the order does not name each dimension of " + to_text(in.shape()) + " once");
  }
  return copy_as(out, shape, operand);
}

Status transpose_copy(const TensorView& in, LineDim first, LineDim second, TensorView& out) {
  std::vector<std::int64_t> dims(in.rank);
  std::iota(dims.begin(), dims.end(), 0);
  if (in.rank != 0) {
    std::swap(dims[first.at], dims[second.at]);
  }
  return permute_copy(in, dims, out);
}
Status t_copy(const TensorView& in, TensorView& out) {
  return in.rank < 2 ? permute_copy(in, std::vector<std::int64_t>(in.rank), out)
                     : transpose_copy(in, {{0}}, {{1}}, out);
}

Status expand_copy(const TensorView& in, Shape shape, Unused /*implicit*/, TensorView& out) {
  if (shape.size() < in.rank) {
    return mismatch("cannot expand " + to_text(in.shape()) + " to " + to_text(shape));
  }
  const std::size_t added = shape.size() - in.rank;
  for (std::size_t i = 0; i < in.rank; ++i) {
    std::int64_t& size = shape[added + i];
    size = size == -1 ? in.sizes[i] : size;
    if (in.sizes[i] != 1 && in.sizes[i] != size) {
      return mismatch("cannot expand " + to_text(in.shape()) + " to " + to_text(shape));
    }
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  copy(out, operand_of(in, out));
  return {};
}

Status diagonal_copy(const TensorView& in, std::int64_t offset, Dim dim1, Dim dim2, TensorView& out) {
  const std::size_t a = dim1.at;
  const std::size_t b = dim2.at;
  if (a == b) {
    return mismatch("a diagonal needs two dimensions");
  }
  const std::int64_t rows = in.sizes[a] + std::min<std::int64_t>(offset, 0);
  const std::int64_t columns = in.sizes[b] - std::max<std::int64_t>(offset, 0);
  const std::int64_t length = std::max<std::int64_t>(0, std::min(rows, columns));
  const Operand all = whole(in);
  Operand operand = all;
  if (length > 0) {
    advance(&operand, offset >= 0 ? offset * all.steps[b] : -offset * all.steps[a]);
  }
  Shape shape;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (i != a && i != b) {
      operand.steps[shape.size()] = all.steps[i];
      shape.push_back(in.sizes[i]);
    }
  }
  operand.steps[shape.size()] = all.steps[a] + all.steps[b];
  shape.push_back(length);
  return copy_as(out, shape, operand);
}

Status unfold_copy(const TensorView& in, Dim dimension, std::int64_t size, std::int64_t step,
                   TensorView& out) {
  const std::size_t dim = dimension.at;
  if (size < 0 || size > in.sizes[dim] || step <= 0 || in.rank == kMostDims) {
    return mismatch("cannot unfold " + to_text(in.shape()));
  }
  Operand operand = whole(in);
  Shape shape = in.shape();
  shape[dim] = (in.sizes[dim] - size) / step + 1;
  shape.push_back(size);
  operand.steps[in.rank] = operand.steps[dim];
  operand.steps[dim] *= step;
  return copy_as(out, shape, operand);
}

Status as_strided_copy(const TensorView& in, const Shape& shape, const std::vector<std::int64_t>& strides,
                       std::optional<std::int64_t> storage_offset, TensorView& out) {
  const std::int64_t offset = storage_offset.value_or(0);
  Operand operand = whole(in);
  std::int64_t last = std::min(offset, INT64_MAX / 4);
  bool empty = false;
  for (std::size_t i = 0; i < shape.size() && i < strides.size() && i < kMostDims; ++i) {
    empty = empty || shape[i] <= 0;
    // What is too far stays too far.
    last = std::min(last + (shape[i] - 1) * strides[i], INT64_MAX / 4);
    operand.steps[i] = strides[i];
    if (strides[i] < 0) {
      return mismatch("a stride is negative");
    }
  }
  if (shape.size() != strides.size() || offset < 0 ||
      (!empty && last >= static_cast<std::int64_t>(in.count()))) {
    return mismatch("a view reaches beyond its tensor of " + to_text(in.shape()));
  }
  advance(&operand, empty ? 0 : offset);
  return copy_as(out, shape, operand);
}

// aten::clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) and the like: a copy in
// the output's own memory order and element type, which the settings between the two only repeat.
template <std::size_t kOutAt>
Status copy_to(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(kOutAt);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  return copy_as(out, in.shape(), whole(in));
}

// Src, broadcast to self.
Status copy_out(const TensorView& self, const TensorView& source, Unused /*non_blocking*/, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(goes_into(source, self.shape()));
  return copy_as(out, self.shape(), operand_of(source, self));
}
Status copy_in_place(TensorView& self, const TensorView& source, Unused non_blocking) {
  return copy_out(self, source, non_blocking, self);
}

}  // namespace

constexpr KernelTable kViewKernels = {
    {"aten::_to_copy.out", {copy_to<3>, 4}, Sharing::kEach},
    {"aten::alias_copy.out", {copy_to<1>, 2}, Sharing::kEach},
    {"aten::as_strided_copy.out", typed<as_strided_copy>},
    {"aten::clone.out", {copy_to<2>, 3}, Sharing::kEach},
    {"aten::copy.out", typed<copy_out>, Sharing::kEach},
    {"aten::copy_", typed<copy_in_place>, Sharing::kSelfEach},
    {"aten::detach_copy.out", {copy_to<1>, 2}, Sharing::kEach},
    {"aten::diagonal_copy.out", typed<diagonal_copy>},
    {"aten::expand_copy.out", typed<expand_copy>},
    {"aten::lift_fresh_copy.out", {copy_to<1>, 2}, Sharing::kEach},
    {"aten::permute_copy.out", typed<permute_copy>},
    {"aten::squeeze_copy.dim_out", typed<squeeze_dim>},
    {"aten::squeeze_copy.dims_out", typed<squeeze_dims>},
    {"aten::t_copy.out", typed<t_copy>},
    {"aten::transpose_copy.int_out", typed<transpose_copy>},
    {"aten::unfold_copy.out", typed<unfold_copy>},
    {"aten::unsqueeze_copy.out", typed<unsqueeze_copy>},
    {"aten::view_copy.out", typed<view_copy>},
    {"dim_order_ops::_clone_dim_order.out", {copy_to<3>, 4}, Sharing::kEach},
    {"dim_order_ops::_to_dim_order_copy.out", {copy_to<3>, 4}, Sharing::kEach},
    {"et_copy::_d2h_copy.out", {copy_to<1>, 2}, Sharing::kEach},
    {"et_copy::_h2d_copy.out", {copy_to<1>, 2}, Sharing::kEach},
    {"llama::fallback.out", {copy_to<1>, 2}},
};

}  // namespace slipway::lean
