// Activations that have parameters, gated linear units, softmax and its logarithm.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <variant>

#include "lean/kernels/kernel.h"
#include "lean/kernels/reduction.h"
#include "lean/kernels/sums.h"
#include "lean/kernels/tensor_iterator.h"
#include "lean/kernels/vector_math.h"

namespace slipway::lean {
namespace {

Status gelu(const TensorView& in, const EValue& approximate, TensorView& out) {
  const auto* text = std::get_if<std::string_view>(&approximate);
  if (text != nullptr && *text != "tanh" && *text != "none") {
    return mismatch("gelu is not approximated by \"" + std::string(*text) + "\": tanh and none are known");
  }
  if (text != nullptr && *text == "tanh") {
    return apply_real(in, out, [](auto x) {
      using T = decltype(x);
      constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);
      return T(0.5) * x * (T(1) + tanh_of(kSqrtTwoOverPi * (x + T(0.044715) * x * x * x)));
    });
  }
  return apply_real(in, out, [](auto x) {
    using T = decltype(x);
    constexpr T kSqrtHalf = T(0.70710678118654752440);
    return T(0.5) * x * (T(1) + erf_of(x * kSqrtHalf));
  });
}

Status leaky_relu(const TensorView& in, double slope, TensorView& out) {
  return apply_real(in, out, [slope](auto x) {
    return x > 0 ? x : static_cast<decltype(x)>(x * static_cast<decltype(x)>(slope));
  });
}

Status elu(const TensorView& in, double alpha, double scale, double input_scale, TensorView& out) {
  return apply_real(in, out, [=](auto x) {
    using T = decltype(x);
    return x <= 0 ? static_cast<T>(T(alpha) * T(scale) * std::expm1(x * T(input_scale)))
                  : static_cast<T>(x * T(scale));
  });
}

// One half times the sigmoid of the other.
Status glu(const TensorView& in, std::int64_t dim_given, TensorView& out) {
  std::size_t dim = 0;
  const Status wrapped = wrap_dim(dim_given, in.rank, &dim);
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

// aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)
template <bool Log>
Status softmax(const TensorView& in, std::int64_t dim, Unused /*half_to_float*/, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    return along<T>(in, out, dim, [](T* line, std::size_t count) {
      constexpr std::size_t kLanes = 16;
      T lanes[kLanes];
      std::fill_n(lanes, kLanes, line[0]);
      std::size_t i = 0;
      // NaN may be passed by: it comes into the total below.
      for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t k = 0; k < kLanes; ++k) {
          lanes[k] = line[i + k] > lanes[k] ? line[i + k] : lanes[k];
        }
      }
      T largest = lanes[0];
      for (std::size_t k = 1; k < kLanes; ++k) {
        largest = lanes[k] > largest ? lanes[k] : largest;
      }
      for (; i < count; ++i) {
        largest = line[i] > largest ? line[i] : largest;
      }
      if constexpr (Log) {
        const T scale = std::log(sum_of_each(line, count, [largest](T x) { return exp_of(x - largest); }));
        for (i = 0; i < count; ++i) {
          line[i] = line[i] - largest - scale;
        }
      } else {
        for (i = 0; i < count; ++i) {
          line[i] = exp_of(line[i] - largest);
        }
        const T scale = T(1) / sum_of_run(line, count);
        for (i = 0; i < count; ++i) {
          line[i] *= scale;
        }
      }
    });
  });
}

constexpr KernelEntry kActivationTable[] = {
    {"aten::_log_softmax.out", typed<softmax<true>>, Sharing::kEach},
    {"aten::_softmax.out", typed<softmax<false>>, Sharing::kEach},
    {"aten::elu.out", typed<elu>, Sharing::kEach},
    {"aten::gelu.out", typed<gelu>, Sharing::kEach},
    {"aten::glu.out", typed<glu>},
    {"aten::leaky_relu.out", typed<leaky_relu>, Sharing::kEach},
};

}  // namespace

KernelTable activation_kernels() {
  return kActivationTable;
}

}  // namespace slipway::lean
