// Operators that choose between elements by comparing.
#include <algorithm>

#include "lean/kernels/tables.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// aten::where.self_out(Tensor condition, Tensor self, Tensor other, *, Tensor(a!) out)
Status where(Arguments& arguments) {
  const TensorView& condition = arguments.tensor(0);
  const TensorView& a = arguments.tensor(1);
  const TensorView& b = arguments.tensor(2);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Shape shape;
  Status done = broadcast_shape(a, b, &shape);
  SLIPWAY_RETURN_IF_ERROR(done);
  TensorView both;
  both.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), both.sizes.begin());
  done = broadcast_shape(condition, both, &shape);
  if (done.ok()) {
    done = resize(&out, shape);
  }
  SLIPWAY_RETURN_IF_ERROR(done);
  in_domain(domain_of(promote(a.dtype, b.dtype)), [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, std::array<Operand, 3>{operand_of(condition, out), operand_of(a, out), operand_of(b, out)},
           [](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               result[i] = inputs[0][i] != 0 ? inputs[1][i] : inputs[2][i];
             }
           });
    return 0;
  });
  return {};
}

// aten::clamp.Tensor_out(Tensor self, Tensor? min=None, Tensor? max=None, *, Tensor(a!) out)
Status clamp_tensors(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView* low = arguments.optional_tensor(1);
  const TensorView* high = arguments.optional_tensor(2);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const TensorView& first = low != nullptr ? *low : in;
  const TensorView& last = high != nullptr ? *high : in;
  Shape shape;
  Status done = broadcast_shape(in, first, &shape);
  SLIPWAY_RETURN_IF_ERROR(done);
  TensorView both;
  both.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), both.sizes.begin());
  done = broadcast_shape(both, last, &shape);
  if (done.ok()) {
    done = resize(&out, shape);
  }
  SLIPWAY_RETURN_IF_ERROR(done);
  const bool has_low = low != nullptr;
  const bool has_high = high != nullptr;
  in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, std::array<Operand, 3>{operand_of(in, out), operand_of(first, out), operand_of(last, out)},
           [=](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               T x = inputs[0][i];
               // A NaN bound wins over everything.
               if (has_low && (x < inputs[1][i] || inputs[1][i] != inputs[1][i])) {
                 x = inputs[1][i];
               }
               if (has_high && (x > inputs[2][i] || inputs[2][i] != inputs[2][i])) {
                 x = inputs[2][i];
               }
               result[i] = x;
             }
           });
    return 0;
  });
  return {};
}

constexpr KernelEntry kCompareTable[] = {
    {"aten::clamp.Tensor_out", clamp_tensors, 4},
    {"aten::where.self_out", where, 4},
};

}  // namespace

const KernelEntry* compare_kernels(std::size_t* count) {
  return entries_of(kCompareTable, count);
}

}  // namespace slipway::lean
