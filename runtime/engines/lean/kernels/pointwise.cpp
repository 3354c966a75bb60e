#include "lean/kernels/pointwise.h"

#include <array>

namespace slipway::lean {
namespace {

template <std::size_t N>
void map_in(Domain domain, TensorView& out, const std::array<Operand, N>& operands, const Loops& loops,
            const void* context) {
  switch (domain) {
    case Domain::kInt:
      return map_with(out, operands, loops.whole, context);
    case Domain::kFloat:
      return map_with(out, operands, loops.single, context);
    case Domain::kDouble:
      return map_with(out, operands, loops.twice, context);
  }
}

}  // namespace

Status map_tensor(const TensorView& in, TensorView& out, Domain domain, const Loops& loops,
                  const void* context) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  map_in(domain, out, std::array<Operand, 1>{operand_of(in, out)}, loops, context);
  return {};
}

Status map_unary(Arguments& arguments, std::size_t out_at, Domain domain, const Loops& loops,
                 const void* context) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  return map_tensor(in, out, domain, loops, context);
}

Status map_by_one(Arguments& arguments, std::size_t out_at, Domain domain, const Loops& loops,
                  const void* context) {
  const TensorView& a = arguments.tensor(0);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(resize_to_both(a, arguments.tensor(1), &out));
  map_in(domain, out, std::array<Operand, 1>{operand_of(a, out)}, loops, context);
  return {};
}

Status map_binary(Arguments& arguments, std::size_t out_at, Domain domain, const Loops& loops,
                  const void* context) {
  const TensorView& a = arguments.tensor(0);
  const TensorView& b = arguments.tensor(1);
  TensorView& out = arguments.tensor(out_at);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(resize_to_both(a, b, &out));
  map_in(domain, out, std::array<Operand, 2>{operand_of(a, out), operand_of(b, out)}, loops, context);
  return {};
}

}  // namespace slipway::lean
