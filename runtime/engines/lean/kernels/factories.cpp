// Operators that make tensors out of numbers, and of random ones: the same in every run of a program, so that
// runs can be compared.
#include <algorithm>
#include <cmath>

#include "lean/kernels/tables.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// Every element is the number at `at`.
Status filled(Arguments& arguments, const Shape& shape, std::size_t at, std::size_t out_at) {
  TensorView& out = arguments.tensor(out_at);
  const Number number = arguments.number(at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  fill(out, number);
  return {};
}

// aten::full.out(SymInt[] size, Scalar fill_value, *, Tensor(a!) out)
Status full(Arguments& arguments) {
  return filled(arguments, arguments.integers(0), 1, 2);
}
// aten::full_like.out(Tensor self, Scalar fill_value, *, MemoryFormat? memory_format=None, Tensor(a!) out)
// and aten::fill.Scalar_out(Tensor self, Scalar value, *, Tensor(a!) out)
template <std::size_t kOutAt>
Status full_like(Arguments& arguments) {
  return filled(arguments, arguments.tensor(0).shape(), 1, kOutAt);
}
// aten::scalar_tensor.out(Scalar s, *, Tensor(a!) out)
Status scalar_tensor(Arguments& arguments) {
  return filled(arguments, {}, 0, 1);
}

// aten::fill.Tensor_out(Tensor self, Tensor value, *, Tensor(a!) out)
Status fill_tensor(Arguments& arguments) {
  const TensorView& value = arguments.tensor(1);
  TensorView& out = arguments.tensor(2);
  if (value.count() != 1) {
    return {Code::kExecution, "the value to fill with is not one number", "export the model again"};
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, arguments.tensor(0).shape()));
  Operand operand;
  operand.data = value.data;
  operand.dtype = value.dtype;
  copy(out, operand);
  return {};
}

// aten::ones.out(SymInt[] size, *, Tensor(a!) out), aten::zeros.out
template <std::int64_t kNumber>
Status all_of(Arguments& arguments) {
  TensorView& out = arguments.tensor(1);
  SLIPWAY_RETURN_IF_ERROR(resize(&out, arguments.integers(0)));
  fill(out, {static_cast<double>(kNumber), kNumber, true});
  return {};
}
// aten::empty.out(SymInt[] size, *, MemoryFormat? memory_format=None, Tensor(a!) out)
Status empty(Arguments& arguments) {
  return resize(&arguments.tensor(2), arguments.integers(0));
}

Status range(Arguments& arguments, double start, double end, double step, std::size_t out_at) {
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const double length = std::ceil((end - start) / step);
  if (!(length >= 0) || length > 1e15) {
    return {Code::kExecution, "a range has no end",
            "check the inputs against what the program was exported with"};
  }
  const auto count = static_cast<std::int64_t>(length);
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{count}));
  // Whole numbers that a double holds exactly are counted up as integers.
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const bool whole = !is_floating(out.dtype) && start == std::floor(start) && step == std::floor(step) &&
                     std::abs(start) + length * std::abs(step) < kExact;
  for (std::int64_t done = 0; whole && done < count; done += static_cast<std::int64_t>(kBlock)) {
    std::int64_t values[kBlock];
    const auto block = static_cast<std::size_t>(std::min<std::int64_t>(count - done, kBlock));
    const auto by = static_cast<std::int64_t>(step);
    std::int64_t value = static_cast<std::int64_t>(start) + done * by;
    for (std::size_t i = 0; i < block; ++i) {
      values[i] = value;
      value += by;
    }
    store(out.dtype, values, block, out.data + static_cast<std::size_t>(done) * size_of(out.dtype), 1);
  }
  for (std::int64_t done = whole ? count : 0; done < count; done += static_cast<std::int64_t>(kBlock)) {
    double values[kBlock];
    const auto block = static_cast<std::size_t>(std::min<std::int64_t>(count - done, kBlock));
    for (std::size_t i = 0; i < block; ++i) {
      values[i] = start + static_cast<double>(done + static_cast<std::int64_t>(i)) * step;
    }
    // Integers by way of a double: towards zero, the nearest there is.
    store(out.dtype, values, block, out.data + static_cast<std::size_t>(done) * size_of(out.dtype), 1);
  }
  return {};
}

// aten::arange.out(Scalar end, *, Tensor(a!) out)
Status arange(Arguments& arguments) {
  return range(arguments, 0, arguments.real(0), 1, 1);
}
// aten::arange.start_out(Scalar start, Scalar end, Scalar step=1, *, Tensor(a!) out)
Status arange_start(Arguments& arguments) {
  return range(arguments, arguments.real(0), arguments.real(1), arguments.real(2), 3);
}

constexpr double kTwoPi = 6.283185307179586;

// Uniform in [0, 1): as many bits as a float32 holds, so that rounding to one never gives 1.
double uniform(Scratch& scratch) {
  return static_cast<double>(scratch.random() >> 40U) * 0x1p-24;
}

// Box and Muller's way to normal numbers, from two uniform ones.
double normal(Scratch& scratch) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(scratch)));
  return radius * std::cos(kTwoPi * uniform(scratch));
}

template <double (*Draw)(Scratch&)>
Status fill(Arguments& arguments) {
  TensorView& out = arguments.tensor(1);
  const Status resized = resize(&out, arguments.integers(0));
  if (!resized.ok() || !arguments.fault().ok()) {
    return resized;
  }
  for (std::size_t i = 0, count = out.count(); i < count; ++i) {
    const double value = Draw(arguments.scratch());
    store(out.dtype, &value, 1, out.data + i * size_of(out.dtype), 1);
  }
  return {};
}

// aten::native_dropout.out(Tensor input, float p, bool? train, *, Tensor(a!) out0, Tensor(b!) out1): what is
// kept is made larger by what is not.
Status dropout(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const double p = arguments.real(1);
  const bool train = arguments.is_none(2) || arguments.boolean(2);
  TensorView& out = arguments.tensor(3);
  TensorView& mask = arguments.tensor(4);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  if (!(p >= 0 && p <= 1)) {
    return mismatch("the probability to drop an element is " + std::to_string(p));
  }
  for (TensorView* view : {&out, &mask}) {
    SLIPWAY_RETURN_IF_ERROR(resize(view, in.shape()));
  }
  const std::size_t size = size_of(mask.dtype);
  for (std::size_t i = 0, count = mask.count(); i < count; ++i) {
    const std::int64_t kept = !train || uniform(arguments.scratch()) >= p ? 1 : 0;
    store(mask.dtype, &kept, 1, mask.data + i * size, 1);
  }
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T scale = !train || p == 1 ? T(1) : static_cast<T>(1.0 / (1.0 - p));
    map<T>(out, std::array<Operand, 2>{operand_of(in, out), operand_of(mask, out)},
           [scale](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               result[i] = inputs[1][i] != T(0) ? inputs[0][i] * scale : T(0);
             }
           });
    return Status();
  });
}

constexpr KernelEntry kFactoryTable[] = {
    {"aten::arange.out", arange, 2},
    {"aten::arange.start_out", arange_start, 4},
    {"aten::empty.out", empty, 3},
    {"aten::fill.Scalar_out", full_like<2>, 3, Sharing::kFirst},
    {"aten::fill.Tensor_out", fill_tensor, 3},
    {"aten::full.out", full, 3},
    {"aten::full_like.out", full_like<3>, 4, Sharing::kFirst},
    {"aten::native_dropout.out", dropout, 5},
    {"aten::ones.out", all_of<1>, 2},
    {"aten::rand.out", fill<uniform>, 2},
    {"aten::randn.out", fill<normal>, 2},
    {"aten::scalar_tensor.out", scalar_tensor, 2},
    {"aten::zeros.out", all_of<0>, 2},
    {"dim_order_ops::_empty_dim_order.out", empty, 3},
};

}  // namespace

KernelTable factory_kernels() {
  return kFactoryTable;
}

}  // namespace slipway::lean
