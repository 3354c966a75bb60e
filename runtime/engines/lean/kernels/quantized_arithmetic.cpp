// Arithmetic on quantized tensors: sums, and products of floats with quantized weights.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lean/kernels/tables.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

struct Coded {
  float scale;
  float zero_point;
  float low;
  float high;
};

// Scale, zero point and range, from argument `at` on.
Coded coded_of(Arguments& arguments, std::size_t at) {
  return {static_cast<float>(arguments.real(at)), static_cast<float>(arguments.integer(at + 1)),
          static_cast<float>(arguments.integer(at + 2)), static_cast<float>(arguments.integer(at + 3))};
}

// quantized_decomposed::add.out(Tensor a, float a_scale, int a_zero_point, int a_quant_min, int a_quant_max,
// Tensor b, float b_scale, int b_zero_point, int b_quant_min, int b_quant_max, float out_scale, int
// out_zero_point, int out_quant_min, int out_quant_max, *, Tensor(a!) out)
Status add_quantized(Arguments& arguments) {
  const TensorView& a = arguments.tensor(0);
  const TensorView& b = arguments.tensor(5);
  TensorView& out = arguments.tensor(14);
  const Coded of_a = coded_of(arguments, 1);
  const Coded of_b = coded_of(arguments, 6);
  const Coded of_out = coded_of(arguments, 10);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(resize_to_both(a, b, &out));
  const float inverse = 1.0F / of_out.scale;
  map<float>(out, std::array<Operand, 2>{operand_of(a, out), operand_of(b, out)},
             [=](const float* const* inputs, float* result, std::size_t count) {
               for (std::size_t i = 0; i < count; ++i) {
                 const float sum = (inputs[0][i] - of_a.zero_point) * of_a.scale +
                                   (inputs[1][i] - of_b.zero_point) * of_b.scale;
                 const float rounded = std::nearbyint(sum * inverse) + of_out.zero_point;
                 result[i] = std::min(std::max(rounded, of_out.low), of_out.high);
               }
             });
  return {};
}

// A weight of integers as floats. Each row has a scale, or one for each of the groups it is cut into.
Status weight_of(Arguments& arguments, std::vector<float>* values) {
  const TensorView& weight = arguments.tensor(1);
  const TensorView& scales = arguments.tensor(2);
  const TensorView* zero_points = arguments.optional_tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const std::size_t groups = scales.rank == 2 ? static_cast<std::size_t>(scales.sizes[1]) : 1;
  if (weight.rank != 2 || scales.rank < 1 || scales.rank > 2 || scales.sizes[0] != weight.sizes[0] ||
      groups == 0 || (zero_points != nullptr && zero_points->count() != scales.count())) {
    return mismatch("scales of " + to_text(scales.shape()) + " do not fit a weight of " +
                    to_text(weight.shape()));
  }
  *values = elements_of<float>(weight);
  const std::vector<float> scale = elements_of<float>(scales);
  const std::vector<float> zero =
      zero_points == nullptr ? std::vector<float>(scale.size()) : elements_of<float>(*zero_points);
  const auto width = static_cast<std::size_t>(weight.sizes[1]);
  const std::size_t group = (width + groups - 1) / groups;
  for (std::size_t i = 0; i < values->size(); ++i) {
    const std::size_t at = i / width * groups + i % width / group;
    (*values)[i] = ((*values)[i] - zero[at]) * scale[at];
  }
  return {};
}

// out = in (m x k) times the weight, which is k x n, or n x k when it is transposed.
Status quantized_product(Arguments& arguments, bool transposed, std::size_t out_at) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& weight = arguments.tensor(1);
  TensorView& out = arguments.tensor(out_at);
  std::vector<float> factors;
  const Status read = weight_of(arguments, &factors);
  if (!read.ok() || !arguments.fault().ok()) {
    return read;
  }
  const std::int64_t inner = weight.sizes[transposed ? 1 : 0];
  if (in.rank == 0 || in.sizes[in.rank - 1U] != inner) {
    return mismatch("cannot multiply " + to_text(in.shape()) + " with " + to_text(weight.shape()));
  }
  Shape shape = in.shape();
  shape.back() = weight.sizes[transposed ? 0 : 1];
  const Status resized = resize(&out, shape);
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  const auto k = static_cast<std::size_t>(inner);
  const auto n = static_cast<std::size_t>(shape.back());
  const std::vector<float> values = elements_of<float>(in);
  std::vector<float> result(out.count());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float* row = values.data() + i / n * k;
    for (std::size_t l = 0; l < k; ++l) {
      result[i] += row[l] * factors[transposed ? i % n * k + l : l * n + i % n];
    }
  }
  copy(out, operand_of(straightened(out, result.data()), out));
  return {};
}

// quantized_decomposed::mixed_mm.out(Tensor input, Tensor weight, Tensor weight_scales, Tensor?
// weight_zero_points,
// *, Tensor(a!) out)
Status mixed_mm(Arguments& arguments) {
  return quantized_product(arguments, false, 4);
}
// quantized_decomposed::mixed_linear.out(Tensor input, Tensor weight, Tensor weight_scales, Tensor?
// weight_zero_points, ScalarType? dtype=None, *, Tensor(a!) out)
Status mixed_linear(Arguments& arguments) {
  return quantized_product(arguments, true, 5);
}

constexpr KernelEntry kQuantizedArithmeticTable[] = {
    {"quantized_decomposed::add.out", add_quantized, 15, Sharing::kEach},
    {"quantized_decomposed::mixed_linear.out", mixed_linear, 6},
    {"quantized_decomposed::mixed_mm.out", mixed_mm, 5},
};

}  // namespace

KernelTable quantized_arithmetic_kernels() {
  return kQuantizedArithmeticTable;
}

}  // namespace slipway::lean
