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

// Argument `out_at` = loop(argument 0), computed in `domain`.
Status map_unary(Arguments& arguments, std::size_t out_at, Domain domain, const Loops& loops,
                 const void* context);
// Argument `out_at` = loop(argument 0, argument 1), both tensors, which are broadcast.
Status map_binary(Arguments& arguments, std::size_t out_at, Domain domain, const Loops& loops,
                  const void* context);
// The same when argument 1 has one element, which `context` has: argument `out_at` = loop(argument 0).
Status map_by_one(Arguments& arguments, std::size_t out_at, Domain domain, const Loops& loops,
                  const void* context);
// out = loop(in), whatever the arguments are.
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

// Argument `out_at` = f(argument 0), computed in `domain`.
template <typename F>
Status apply_unary(Arguments& arguments, std::size_t out_at, Domain domain, const F& f) {
  return map_unary(arguments, out_at, domain,
                   {unary_loop<F, std::int64_t>, unary_loop<F, float>, unary_loop<F, double>}, &f);
}

// The same for what is computed in floats, whatever the argument's type.
template <typename F>
Status apply_real(Arguments& arguments, std::size_t out_at, const F& f) {
  return map_unary(arguments, out_at, floating(arguments.tensor(0).dtype),
                   {nullptr, unary_loop<F, float>, unary_loop<F, double>}, &f);
}

}  // namespace slipway::lean
