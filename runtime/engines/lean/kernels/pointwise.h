// Operators that compute each element on its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lean/kernels/kernel.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {

// An operator's loops, one for each type that is computed in; nullptr for a type that it never is computed
// in.
struct Loops {
  Loop<std::int64_t> whole = nullptr;
  Loop<float> single = nullptr;
  Loop<double> twice = nullptr;
};

// out = loop(a, b), which are broadcast, computed in `domain`.
Status map_binary(const TensorView& a, const TensorView& b, TensorView& out, Domain domain,
                  const Loops& loops, const void* context);
// The same when b has one element, which `context` has: out = loop(a).
Status map_by_one(const TensorView& a, const TensorView& b, TensorView& out, Domain domain,
                  const Loops& loops, const void* context);
// out = loop(in).
Status map_tensor(const TensorView& in, TensorView& out, Domain domain, const Loops& loops,
                  const void* context);

// f(element) of type T. The function is copied: what it keeps need not be read again for each element.
template <typename F, typename T>
void unary_loop(const void* context, const T* const* inputs, T* result, std::size_t count) {
  const F f = *static_cast<const F*>(context);
  const T* in = inputs[0];
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = f(in[i]);
  }
}

// out = f(in), computed in `domain`.
template <typename F>
Status apply_unary(const TensorView& in, TensorView& out, Domain domain, const F& f) {
  return map_tensor(in, out, domain,
                    {unary_loop<F, std::int64_t>, unary_loop<F, float>, unary_loop<F, double>}, &f);
}

// The same for what is computed in floats, whatever the argument's type.
template <typename F>
Status apply_real(const TensorView& in, TensorView& out, const F& f) {
  return map_tensor(in, out, floating(in.dtype), {nullptr, unary_loop<F, float>, unary_loop<F, double>}, &f);
}

}  // namespace slipway::lean
