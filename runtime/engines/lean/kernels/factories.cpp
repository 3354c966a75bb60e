// Operators that make tensors out of numbers. Random ones are the same in every run: runs can be compared.
#include <algorithm>
#include <cmath>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

Status full(const std::vector<std::int64_t>& size, Number number, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, size));
  fill(out, number);
  return {};
}
Status full_like(const TensorView& in, Number number, Unused /*memory_format*/, TensorView& out) {
  return full(in.shape(), number, out);
}
Status fill_scalar(const TensorView& in, Number number, TensorView& out) {
  return full(in.shape(), number, out);
}
Status scalar_tensor(Number number, TensorView& out) {
  return full({}, number, out);
}

Status fill_tensor(const TensorView& in, const TensorView& value, TensorView& out) {
  if (value.count() != 1) {
    return mismatch("the value to fill with is not one number");
  }
  return copy_as(out, in.shape(), {value.data, value.dtype, {}});
}

template <std::int64_t kNumber>
Status all_of(const std::vector<std::int64_t>& size, TensorView& out) {
  return full(size, {static_cast<double>(kNumber), kNumber, true}, out);
}
Status empty(const std::vector<std::int64_t>& size, Unused /*memory_format*/, TensorView& out) {
  return resize(&out, size);
}

Status arange_start(double start, double end, double step, TensorView& out) {
  const double length = std::ceil((end - start) / step);
  if (!(length >= 0) || length > 1e15) {
    return mismatch("a range has no end");
  }
  const auto count = static_cast<std::int64_t>(length);
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{count}));
  // Whole numbers that a double holds exactly are counted up as integers; other integers come by way of a
  // double: towards zero, the nearest there is.
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const bool whole = !is_floating(out.dtype) && start == std::floor(start) && step == std::floor(step) &&
                     std::abs(start) + length * std::abs(step) < kExact;
  const auto put = [&](auto first, auto by) {
    using T = decltype(first);
    T values[kBlock];
    for (std::int64_t done = 0; done < count; done += static_cast<std::int64_t>(kBlock)) {
      const auto block = static_cast<std::size_t>(std::min<std::int64_t>(count - done, kBlock));
      for (std::size_t i = 0; i < block; ++i) {
        values[i] = first + static_cast<T>(done + static_cast<std::int64_t>(i)) * by;
      }
      store(out.dtype, values, block, out.data + static_cast<std::size_t>(done) * size_of(out.dtype), 1);
    }
  };
  if (whole) {
    put(static_cast<std::int64_t>(start), static_cast<std::int64_t>(step));
  } else {
    put(start, step);
  }
  return {};
}

Status arange(double end, TensorView& out) {
  return arange_start(0, end, 1, out);
}

// Uniform in [0, 1): as many bits as a float32 holds, so that rounding to one never gives 1.
double uniform(Scratch& scratch) {
  return static_cast<double>(scratch.random() >> 40U) * 0x1p-24;
}

// Box and Muller's way to normal numbers, from two uniform ones.
double normal(Scratch& scratch) {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(scratch)));
  return radius * std::cos(kTwoPi * uniform(scratch));
}

template <double (*Draw)(Scratch&)>
Status drawn(const std::vector<std::int64_t>& size, TensorView& out, Scratch& scratch) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, size));
  for (std::size_t i = 0, count = out.count(); i < count; ++i) {
    const double value = Draw(scratch);
    store(out.dtype, &value, 1, out.data + i * size_of(out.dtype), 1);
  }
  return {};
}

// What is kept is made larger by what is not.
Status dropout(const TensorView& in, double p, std::optional<std::int64_t> training, TensorView& out,
               TensorView& mask, Scratch& scratch) {
  const bool train = training.value_or(1) != 0;
  if (!(p >= 0 && p <= 1)) {
    return mismatch("the probability to drop an element is " + std::to_string(p));
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  SLIPWAY_RETURN_IF_ERROR(resize(&mask, in));
  const std::size_t size = size_of(mask.dtype);
  for (std::size_t i = 0, count = mask.count(); i < count; ++i) {
    const std::int64_t kept = !train || uniform(scratch) >= p ? 1 : 0;
    store(mask.dtype, &kept, 1, mask.data + i * size, 1);
  }
  const double scale = !train || p == 1 ? 1 : 1.0 / (1.0 - p);
  map<In::kFloats>(out, std::array<Operand, 2>{operand_of(in, out), operand_of(mask, out)}, in.dtype,
                   [scale](auto x, auto kept) {
                     using T = decltype(x);
                     return kept != T(0) ? x * static_cast<T>(scale) : T(0);
                   });
  return {};
}

}  // namespace

constexpr KernelTable kFactoryKernels = {
    {"aten::arange.out", typed<arange>},
    {"aten::arange.start_out", typed<arange_start>},
    {"aten::empty.out", typed<empty>},
    {"aten::fill.Scalar_out", typed<fill_scalar>, Sharing::kFirst},
    {"aten::fill.Tensor_out", typed<fill_tensor>},
    {"aten::full.out", typed<full>},
    {"aten::full_like.out", typed<full_like>, Sharing::kFirst},
    {"aten::native_dropout.out", typed<dropout>},
    {"aten::ones.out", typed<all_of<1>>},
    {"aten::rand.out", typed<drawn<uniform>>},
    {"aten::randn.out", typed<drawn<normal>>},
    {"aten::scalar_tensor.out", typed<scalar_tensor>},
    {"aten::zeros.out", typed<all_of<0>>},
    {"dim_order_ops::_empty_dim_order.out", typed<empty>},
};

}  // namespace slipway::lean
