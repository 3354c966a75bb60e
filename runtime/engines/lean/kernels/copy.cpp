// Copies, in the output's own memory order and element type.
#include <cstddef>

#include "lean/kernels/strided_copy.h"
#include "lean/kernels/tables.h"

namespace slipway::lean {
namespace {

// A copy in the output's own memory order and element type. Between the input and the output stand settings
// that the output's tensor has taken up already.
Status copy_to(Arguments& arguments, std::size_t in_at, std::size_t out_at) {
  const TensorView& in = arguments.tensor(in_at);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  return copy_as(out, in.shape(), whole(in));
}

// aten::_to_copy.out(Tensor self, *, bool non_blocking=False, MemoryFormat? memory_format=None, Tensor(a!)
// out)
Status to_copy(Arguments& arguments) {
  return copy_to(arguments, 0, 3);
}
// aten::clone.out(Tensor self, *, MemoryFormat? memory_format=None, Tensor(a!) out)
Status clone(Arguments& arguments) {
  return copy_to(arguments, 0, 2);
}
// aten::OP.out(Tensor self, *, Tensor(a!) out)
Status plain_copy(Arguments& arguments) {
  return copy_to(arguments, 0, 1);
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
  const Status writable = resize(&self, shape);
  if (writable.ok()) {
    copy(self, operand_of(source, self));
  }
  return writable;
}

constexpr KernelEntry kCopyTable[] = {
    {"aten::_to_copy.out", to_copy, 4, Sharing::kEach},
    {"aten::alias_copy.out", plain_copy, 2, Sharing::kEach},
    {"aten::clone.out", clone, 3, Sharing::kEach},
    {"aten::copy.out", copy_out, 4, Sharing::kEach},
    {"aten::copy_", copy_in_place, 3, Sharing::kSelfEach},
    {"aten::detach_copy.out", plain_copy, 2, Sharing::kEach},
    {"aten::lift_fresh_copy.out", plain_copy, 2, Sharing::kEach},
    {"dim_order_ops::_clone_dim_order.out", to_copy, 4, Sharing::kEach},
    {"dim_order_ops::_to_dim_order_copy.out", to_copy, 4, Sharing::kEach},
    {"et_copy::_d2h_copy.out", plain_copy, 2, Sharing::kEach},
    {"et_copy::_h2d_copy.out", plain_copy, 2, Sharing::kEach},
};

}  // namespace

KernelTable copy_kernels() {
  return kCopyTable;
}

}  // namespace slipway::lean
