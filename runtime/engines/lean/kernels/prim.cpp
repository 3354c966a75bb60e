// Operators on sizes and numbers, which programs with dynamic shapes and control flow compute with.
#include <math.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

Status sym_size(const TensorView& in, Dim dim, EValue& out) {
  const std::int64_t size = in.sizes[dim.at];  // the result may be the tensor's own value
  out = size;
  return {};
}

Status sym_numel(const TensorView& in, EValue& out) {
  out = static_cast<std::int64_t>(in.count());
  return {};
}

Status local_scalar(const TensorView& in, EValue& out) {
  if (in.count() != 1) {
    return mismatch("a tensor of " + to_text(in.shape()) + " is not one number");
  }
  if (is_floating(in.dtype)) {
    out = load_one<double>(in.dtype, in.data);
  } else {
    const auto number = load_one<std::int64_t>(in.dtype, in.data);
    out = in.dtype == DType::kBool ? EValue(number != 0) : EValue(number);
  }
  return {};
}

template <bool kLargest>
struct Extreme {
  template <typename T>
  T operator()(T a, T b) const {
    return (kLargest ? a > b : a < b) ? a : b;
  }
};

// Sizes wrap around (-fwrapv): a damaged one is wrong and no more.
template <typename Op>
Status number_op(Number a, Number b, EValue& out) {
  out = a.integral && b.integral ? EValue(Op()(a.integer, b.integer)) : EValue(Op()(a.real, b.real));
  return {};
}

Status floordiv(Number a, Number b, EValue& out) {
  if (!a.integral || !b.integral) {
    out = std::floor(a.real / b.real);
    return {};
  }
  if (b.integer == 0 || (b.integer == -1 && a.integer == INT64_MIN)) {
    return mismatch("a size is divided by " + std::to_string(b.integer));
  }
  const bool rounded = a.integer % b.integer != 0 && (a.integer < 0) != (b.integer < 0);
  out = a.integer / b.integer - (rounded ? 1 : 0);
  return {};
}

// The sign of the divisor, as in Python.
Status mod(std::int64_t a, std::int64_t b, EValue& out) {
  if (b == 0) {
    return mismatch("a size is divided by 0");
  }
  const std::int64_t rest = b == -1 ? 0 : a % b;
  out = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  return {};
}

Status truediv(double a, double b, EValue& out) {
  out = a / b;
  return {};
}

template <double (*Round)(double)>
Status to_whole(double given, EValue& out) {
  out = to_int64(Round(given));
  return {};
}

Status neg(Number a, EValue& out) {
  out = a.integral ? EValue(-a.integer) : EValue(-a.real);
  return {};
}

Status sym_float(double a, EValue& out) {
  out = a;
  return {};
}
Status sym_not(bool a, EValue& out) {
  out = !a;
  return {};
}
Status sym_ite(bool condition, EValue& a, EValue& b, EValue& out) {
  const EValue chosen = condition ? a : b;
  out = chosen;
  return {};
}

// executorch_prim::et_view.default(Tensor self, int[] size) -> (Tensor out), in the input's memory.
Status et_view(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor_without_memory(2);
  Shape shape = arguments.integers(1);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  settle_open_size(&shape, in.count());
  std::size_t count = 0;
  if (!count_elements(shape, size_of(in.dtype), &count) || count != in.count() || out.dtype != in.dtype ||
      shape.size() != out.rank) {
    return mismatch("cannot view " + to_text(in.shape()) + " as " + to_text(arguments.integers(1)));
  }
  // Its memory is the input's: only the exported bounds limit its shape.
  TensorView view = out;
  view.data = in.data;
  view.capacity = in.capacity;
  view.constant = false;
  SLIPWAY_RETURN_IF_ERROR(resize(&view, shape));
  view.constant = in.constant;
  out = view;
  return {};
}

// Row `index` of self becomes copy_from; self grows to hold it.
Status copy_index(TensorView& self, const TensorView& source, std::int64_t index) {
  if (self.rank != source.rank + 1U || index < 0 || index == INT64_MAX || self.dtype != source.dtype ||
      !std::equal(source.sizes.begin(), source.sizes.begin() + source.rank, self.sizes.begin() + 1)) {
    return mismatch("cannot put " + to_text(source.shape()) + " into " + to_text(self.shape()));
  }
  Shape shape = self.shape();
  shape[0] = std::max(shape[0], index + 1);
  const Status resized = resize(&self, shape);
  if (resized.ok() && source.bytes() != 0) {
    std::memmove(self.data + static_cast<std::size_t>(index) * source.bytes(), source.data, source.bytes());
  }
  return resized;
}

}  // namespace

constexpr KernelTable kPrimKernels = {
    {"aten::_local_scalar_dense", typed<local_scalar>},
    {"aten::sym_numel", typed<sym_numel>},
    {"aten::sym_size.int", typed<sym_size>},
    {"executorch_prim::add.Scalar", typed<number_op<std::plus<>>>},
    {"executorch_prim::ceil.Scalar", typed<to_whole<::ceil>>},
    {"executorch_prim::eq.Scalar", typed<number_op<std::equal_to<>>>},
    {"executorch_prim::et_copy_index.tensor", typed<copy_index>, Sharing::kSelf},
    {"executorch_prim::et_view.default", {et_view, 3}, Sharing::kView},
    {"executorch_prim::floordiv.Scalar", typed<floordiv>},
    {"executorch_prim::floordiv.int", typed<floordiv>},
    {"executorch_prim::ge.Scalar", typed<number_op<std::greater_equal<>>>},
    {"executorch_prim::gt.Scalar", typed<number_op<std::greater<>>>},
    {"executorch_prim::le.Scalar", typed<number_op<std::less_equal<>>>},
    {"executorch_prim::lt.Scalar", typed<number_op<std::less<>>>},
    {"executorch_prim::mod.Scalar", typed<mod>},
    {"executorch_prim::mod.int", typed<mod>},
    {"executorch_prim::mul.Scalar", typed<number_op<std::multiplies<>>>},
    {"executorch_prim::neg.Scalar", typed<neg>},
    {"executorch_prim::round.Scalar", typed<to_whole<::nearbyint>>},
    {"executorch_prim::sub.Scalar", typed<number_op<std::minus<>>>},
    {"executorch_prim::sym_float.Scalar", typed<sym_float>},
    {"executorch_prim::sym_int.Scalar", typed<to_whole<::trunc>>},
    {"executorch_prim::sym_ite.Scalar", typed<sym_ite>},
    {"executorch_prim::sym_max.Scalar", typed<number_op<Extreme<true>>>},
    {"executorch_prim::sym_min.Scalar", typed<number_op<Extreme<false>>>},
    {"executorch_prim::sym_not.Scalar", typed<sym_not>},
    {"executorch_prim::truediv.Scalar", typed<truediv>},
    {"executorch_prim::trunc.Scalar", typed<to_whole<::trunc>>},
};

}  // namespace slipway::lean
