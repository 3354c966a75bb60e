// Operators of one tensor, element by element.
#pragma once

#include <array>
#include <cstddef>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

// Argument `out_at` = f(argument 0), computed in `domain`.
template <typename F>
Status apply_unary(Arguments& arguments, std::size_t out_at, Domain domain, F f) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  in_domain(domain, [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, std::array<Operand, 1>{operand_of(in, out)},
           [&](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               result[i] = f(inputs[0][i]);
             }
           });
    return 0;
  });
  return {};
}

}  // namespace slipway::lean
