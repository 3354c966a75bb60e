// Random numbers: the same ones in every run of a program, so that runs can be compared.
#include <cmath>

#include "lean/kernels/tables.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

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

constexpr KernelEntry kDistributionTable[] = {
    {"aten::native_dropout.out", dropout, 5},
    {"aten::rand.out", fill<uniform>, 2},
    {"aten::randn.out", fill<normal>, 2},
};

}  // namespace

KernelTable distribution_kernels() {
  return kDistributionTable;
}

}  // namespace slipway::lean
