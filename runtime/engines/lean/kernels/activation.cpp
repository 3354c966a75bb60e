// Activations that have parameters, and gated linear units.
#include <cmath>
#include <string>
#include <string_view>
#include <variant>

#include "lean/kernels/pointwise.h"
#include "lean/kernels/tables.h"
#include "lean/kernels/vector_math.h"

namespace slipway::lean {
namespace {

// aten::gelu.out(Tensor self, *, str approximate='none', Tensor(a!) out)
Status gelu(Arguments& arguments) {
  const auto* text = std::get_if<std::string_view>(&arguments.value(1));
  if (text != nullptr && *text != "tanh" && *text != "none") {
    return mismatch("gelu is not approximated by \"" + std::string(*text) + "\": tanh and none are known");
  }
  if (text != nullptr && *text == "tanh") {
    return apply_real(arguments, 2, [](auto x) {
      using T = decltype(x);
      constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);
      return T(0.5) * x * (T(1) + tanh_of(kSqrtTwoOverPi * (x + T(0.044715) * x * x * x)));
    });
  }
  return apply_real(arguments, 2, [](auto x) {
    using T = decltype(x);
    constexpr T kSqrtHalf = T(0.70710678118654752440);
    return T(0.5) * x * (T(1) + erf_of(x * kSqrtHalf));
  });
}

// aten::leaky_relu.out(Tensor self, Scalar negative_slope=0.01, *, Tensor(a!) out)
Status leaky_relu(Arguments& arguments) {
  const double slope = arguments.real(1);
  return apply_real(arguments, 2, [slope](auto x) {
    return x > 0 ? x : static_cast<decltype(x)>(x * static_cast<decltype(x)>(slope));
  });
}

// aten::elu.out(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1, *, Tensor(a!) out)
Status elu(Arguments& arguments) {
  const double alpha = arguments.real(1);
  const double scale = arguments.real(2);
  const double input_scale = arguments.real(3);
  return apply_real(arguments, 4, [=](auto x) {
    using T = decltype(x);
    return x <= 0 ? static_cast<T>(T(alpha) * T(scale) * std::expm1(x * T(input_scale)))
                  : static_cast<T>(x * T(scale));
  });
}

// aten::glu.out(Tensor self, int dim=-1, *, Tensor(a!) out): one half times the sigmoid of the other.
Status glu(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(2);
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(arguments.integer(1), in.rank, &dim);
  if (!wrapped.ok() || in.sizes[dim] % 2 != 0) {
    return wrapped.ok() ? mismatch("cannot halve " + to_text(in.shape())) : wrapped;
  }
  Shape shape = in.shape();
  shape[dim] /= 2;
  const Status resized = resize(&out, shape);
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  const auto strides = in.strides();
  Operand first;
  first.data = in.data;
  first.dtype = in.dtype;
  std::copy(strides.begin(), strides.begin() + in.rank, first.steps.begin());
  Operand second = first;
  second.data += shape[dim] * strides[dim] * static_cast<std::int64_t>(size_of(in.dtype));
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, std::array<Operand, 2>{first, second},
           [](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               result[i] = inputs[0][i] / (T(1) + exp_of(-inputs[1][i]));
             }
           });
    return Status();
  });
}

constexpr KernelEntry kActivationTable[] = {
    {"aten::elu.out", elu, 5, Sharing::kEach},
    {"aten::gelu.out", gelu, 3, Sharing::kEach},
    {"aten::glu.out", glu, 3},
    {"aten::leaky_relu.out", leaky_relu, 3, Sharing::kEach},
};

}  // namespace

KernelTable activation_kernels() {
  return kActivationTable;
}

}  // namespace slipway::lean
