// Views of a tensor, as copies in the output's own memory order and element type.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "lean/kernels/tables.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// The elements keep their logical row-major order under another shape; one size may be -1.
Status reshape_copy(Arguments& arguments, Shape shape, std::size_t out_at) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::int64_t& size : shape) {
    if (size == -1 && open == nullptr) {
      open = &size;
    } else {
      known *= size;
    }
  }
  if (open != nullptr) {
    *open = known == 0 ? 0 : static_cast<std::int64_t>(in.count()) / known;
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  if (out.count() != in.count() || out.dtype != in.dtype) {
    return mismatch("cannot view " + to_text(in.shape()) + " as " + to_text(shape));
  }
  if (!in.contiguous() || !out.contiguous()) {
    // Through row-major order: other memory orders do not survive a change of shape.
    std::uint8_t* rows = arguments.scratch().get(in.bytes());
    TensorView straight = in;
    straight.data = rows;
    for (std::uint8_t i = 0; i < in.rank; ++i) {
      straight.order[i] = i;
    }
    copy(straight, whole(in));
    TensorView target = out;
    for (std::uint8_t i = 0; i < out.rank; ++i) {
      target.order[i] = i;
    }
    target.data = rows;
    copy(out, whole(target));
  } else if (out.data != in.data && in.bytes() != 0) {
    std::memmove(out.data, in.data, in.bytes());
  }
  return {};
}

// aten::view_copy.out(Tensor self, SymInt[] size, *, Tensor(a!) out)
Status view_copy(Arguments& arguments) {
  return reshape_copy(arguments, arguments.integers(1), 2);
}

// aten::unsqueeze_copy.out(Tensor self, int dim, *, Tensor(a!) out)
Status unsqueeze_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(1), in.rank + 1U, &dim));
  Shape shape = in.shape();
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  return reshape_copy(arguments, shape, 2);
}

Status squeeze(Arguments& arguments, const std::vector<std::int64_t>& dims) {
  const TensorView& in = arguments.tensor(0);
  std::array<bool, kMostDims> gone{};
  for (const std::int64_t item : dims) {
    std::size_t dim = 0;
    SLIPWAY_RETURN_IF_ERROR(in.rank == 0 ? Status() : wrap_dim(item, in.rank, &dim));
    gone[dim] = in.rank != 0 && in.sizes[dim] == 1;
  }
  Shape shape;
  for (std::size_t i = 0; i < in.rank; ++i) {
    if (!gone[i]) {
      shape.push_back(in.sizes[i]);
    }
  }
  return reshape_copy(arguments, shape, 2);
}

// aten::squeeze_copy.dim_out(Tensor self, int dim, *, Tensor(a!) out)
Status squeeze_dim(Arguments& arguments) {
  return squeeze(arguments, {arguments.integer(1)});
}
// aten::squeeze_copy.dims_out(Tensor self, int[] dim, *, Tensor(a!) out)
Status squeeze_dims(Arguments& arguments) {
  return squeeze(arguments, arguments.integers(1));
}

Status permuted(Arguments& arguments, const std::vector<std::int64_t>& dims, std::size_t out_at) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const Operand all = whole(in);
  Operand operand = all;
  Shape shape(in.rank);
  std::array<bool, kMostDims> seen{};
  for (std::size_t i = 0; i < dims.size() && i < in.rank; ++i) {
    std::size_t dim = 0;
    SLIPWAY_RETURN_IF_ERROR(wrap_dim(dims[i], in.rank, &dim));
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

// aten::permute_copy.out(Tensor self, int[] dims, *, Tensor(a!) out)
Status permute_copy(Arguments& arguments) {
  return permuted(arguments, arguments.integers(1), 2);
}

Status swapped(Arguments& arguments, std::int64_t first, std::int64_t second, std::size_t out_at) {
  const std::size_t rank = arguments.tensor(0).rank;
  std::size_t a = 0;
  std::size_t b = 0;
  if (rank != 0) {
    SLIPWAY_RETURN_IF_ERROR(wrap_dim(first, rank, &a));
    SLIPWAY_RETURN_IF_ERROR(wrap_dim(second, rank, &b));
  }
  std::vector<std::int64_t> dims(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    dims[i] = static_cast<std::int64_t>(i == a ? b : i == b ? a : i);
  }
  return permuted(arguments, dims, out_at);
}

// aten::transpose_copy.int_out(Tensor self, int dim0, int dim1, *, Tensor(a!) out)
Status transpose_copy(Arguments& arguments) {
  return swapped(arguments, arguments.integer(1), arguments.integer(2), 3);
}
// aten::t_copy.out(Tensor self, *, Tensor(a!) out)
Status t_copy(Arguments& arguments) {
  const std::size_t rank = arguments.tensor(0).rank;
  return rank < 2
             ? permuted(arguments, rank == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{0}, 1)
             : swapped(arguments, 0, 1, 1);
}

// aten::expand_copy.out(Tensor self, SymInt[] size, *, bool implicit=False, Tensor(a!) out)
Status expand_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(3);
  Shape shape = arguments.integers(1);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
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

// aten::diagonal_copy.out(Tensor self, int offset=0, int dim1=0, int dim2=1, *, Tensor(a!) out)
Status diagonal_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const std::int64_t offset = arguments.integer(1);
  std::size_t a = 0;
  std::size_t b = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(2), in.rank, &a));
  Status wrapped = wrap_dim(arguments.integer(3), in.rank, &b);
  if (!wrapped.ok() || a == b) {
    return wrapped.ok() ? mismatch("a diagonal needs two dimensions") : wrapped;
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
  return copy_as(arguments.tensor(4), shape, operand);
}

// aten::unfold_copy.out(Tensor self, int dimension, int size, int step, *, Tensor(a!) out)
Status unfold_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  std::size_t dim = 0;
  SLIPWAY_RETURN_IF_ERROR(wrap_dim(arguments.integer(1), in.rank, &dim));
  const std::int64_t size = arguments.integer(2);
  const std::int64_t step = arguments.integer(3);
  if (size < 0 || size > in.sizes[dim] || step <= 0 || in.rank == kMostDims) {
    return mismatch("cannot unfold " + to_text(in.shape()));
  }
  Operand operand = whole(in);
  Shape shape = in.shape();
  shape[dim] = (in.sizes[dim] - size) / step + 1;
  shape.push_back(size);
  operand.steps[in.rank] = operand.steps[dim];
  operand.steps[dim] *= step;
  return copy_as(arguments.tensor(4), shape, operand);
}

// aten::as_strided_copy.out(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None, *,
// Tensor(a!) out)
Status as_strided_copy(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const Shape shape = arguments.integers(1);
  const std::vector<std::int64_t> strides = arguments.integers(2);
  const std::int64_t offset = arguments.optional_integer(3).value_or(0);
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
  return copy_as(arguments.tensor(4), shape, operand);
}

// aten::clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out) and the like: a copy in
// the output's own memory order and element type. Between the two stand settings that the output's tensor has
// taken up already.
template <std::size_t kOutAt>
Status copy_to(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(kOutAt);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  return copy_as(out, in.shape(), whole(in));
}

// aten::copy.out(Tensor self, Tensor src, bool non_blocking=False, *, Tensor(a!) out): src, broadcast to
// self.
Status copy_out(Arguments& arguments) {
  const TensorView& self = arguments.tensor(0);
  const TensorView& source = arguments.tensor(1);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Shape shape;
  Status done = broadcast_shape(self, source, &shape);
  if (done.ok() && shape != self.shape()) {
    done = mismatch(to_text(source.shape()) + " does not go into " + to_text(self.shape()));
  }
  if (done.ok()) {
    done = resize(&out, shape);
  }
  if (done.ok()) {
    copy(out, operand_of(source, out));
  }
  return done;
}

// aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False)
Status copy_in_place(Arguments& arguments) {
  TensorView& self = arguments.tensor(0);
  const TensorView& source = arguments.tensor(1);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Shape shape;
  const Status done = broadcast_shape(self, source, &shape);
  if (!done.ok() || shape != self.shape()) {
    return done.ok() ? mismatch(to_text(source.shape()) + " does not go into " + to_text(self.shape()))
                     : done;
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&self, shape));
  copy(self, operand_of(source, self));
  return {};
}

constexpr KernelEntry kViewTable[] = {
    {"aten::_to_copy.out", copy_to<3>, 4, Sharing::kEach},
    {"aten::alias_copy.out", copy_to<1>, 2, Sharing::kEach},
    {"aten::as_strided_copy.out", as_strided_copy, 5},
    {"aten::clone.out", copy_to<2>, 3, Sharing::kEach},
    {"aten::copy.out", copy_out, 4, Sharing::kEach},
    {"aten::copy_", copy_in_place, 3, Sharing::kSelfEach},
    {"aten::detach_copy.out", copy_to<1>, 2, Sharing::kEach},
    {"aten::diagonal_copy.out", diagonal_copy, 5},
    {"aten::expand_copy.out", expand_copy, 4},
    {"aten::lift_fresh_copy.out", copy_to<1>, 2, Sharing::kEach},
    {"aten::permute_copy.out", permute_copy, 3},
    {"aten::squeeze_copy.dim_out", squeeze_dim, 3},
    {"aten::squeeze_copy.dims_out", squeeze_dims, 3},
    {"aten::t_copy.out", t_copy, 2},
    {"aten::transpose_copy.int_out", transpose_copy, 4},
    {"aten::unfold_copy.out", unfold_copy, 5},
    {"aten::unsqueeze_copy.out", unsqueeze_copy, 3},
    {"aten::view_copy.out", view_copy, 3},
    {"dim_order_ops::_clone_dim_order.out", copy_to<3>, 4, Sharing::kEach},
    {"dim_order_ops::_to_dim_order_copy.out", copy_to<3>, 4, Sharing::kEach},
    {"et_copy::_d2h_copy.out", copy_to<1>, 2, Sharing::kEach},
    {"et_copy::_h2d_copy.out", copy_to<1>, 2, Sharing::kEach},
};

}  // namespace

KernelTable view_kernels() {
  return kViewTable;
}

}  // namespace slipway::lean
