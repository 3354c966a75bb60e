// Quantizing and dequantizing, their parameters, embeddings in few bits, arithmetic on quantized tensors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lean/kernels/kernel.h"
#include "lean/kernels/matrix.h"
#include "lean/kernels/reduction.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

struct Range {
  std::int64_t low;
  std::int64_t high;
};

// A scale and a zero point for each element, as operands that broadcast to the output.
struct Parameters {
  Operand scale;
  Operand zero_point;
  float numbers[2] = {};  // that both of the call are, if no tensors

  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  // Of a tensor with `count` elements, one along `dim` (if there are several), or number `i`.
  bool take(const TensorView* view, std::size_t i, std::size_t count, std::size_t dim) {
    Operand& operand = i == 0 ? scale : zero_point;
    operand.data = view == nullptr ? reinterpret_cast<const std::uint8_t*>(&numbers[i]) : view->data;
    operand.dtype = view == nullptr ? DType::kFloat32 : view->dtype;
    operand.steps[dim] = view == nullptr || count == 1 ? 0 : 1;
    return view == nullptr || (view->count() == count && view->contiguous());
  }
};

template <typename F>
Status map_each(const TensorView& in, const Parameters& parameters, TensorView& out, F f) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
  if (parameters.scale.data == reinterpret_cast<const std::uint8_t*>(parameters.numbers)) {
    const auto with_numbers = [f, scale = parameters.numbers[0], zero_point = parameters.numbers[1]](
                                  float x) { return f(x, scale, zero_point); };
    map<In::kSingle>(out, Views<1>{&in}, DType::kFloat32, with_numbers);
    return {};
  }
  map<In::kSingle>(out, std::array<Operand, 3>{operand_of(in, out), parameters.scale, parameters.zero_point},
                   DType::kFloat32, f);
  return {};
}

Status per_tensor(Arguments& arguments, Parameters* parameters) {
  parameters->numbers[0] = static_cast<float>(arguments.real(1));
  parameters->numbers[1] = static_cast<float>(arguments.integer(2));
  parameters->take(nullptr, 0, 1, 0);
  parameters->take(nullptr, 1, 1, 0);
  return {};
}

// One for each of `count` elements along a dimension.
Status per_place(Arguments& arguments, std::size_t count, std::size_t dim, Parameters* parameters) {
  const bool fits = parameters->take(&arguments.tensor(1), 0, count, dim) &&
                    parameters->take(arguments.optional_tensor(2), 1, count, dim);
  return fits ? Status() : mismatch("there are not " + std::to_string(count) + " scales and zero points");
}

Status per_tensor_of_tensors(Arguments& arguments, Parameters* parameters) {
  return per_place(arguments, 1, 0, parameters);
}

Status per_channel(Arguments& arguments, Parameters* parameters) {
  const TensorView& in = arguments.tensor(0);
  const std::size_t dim = arguments.dimension(3, false);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  return per_place(arguments, static_cast<std::size_t>(in.sizes[dim]), dim, parameters);
}

// Tokens are the rows: everything but the last dimension.
Status per_token(Arguments& arguments, Parameters* parameters) {
  const TensorView& in = arguments.tensor(0);
  std::int64_t rows = 1;
  std::array<std::int64_t, kMostDims> steps{};
  for (std::size_t d = in.rank == 0 ? 0 : in.rank - 1U; d-- > 0; rows *= in.sizes[d]) {
    steps[d] = rows;
  }
  const Status done = per_place(arguments, static_cast<std::size_t>(rows), 0, parameters);
  parameters->scale.steps = parameters->zero_point.steps = steps;
  return done;
}

// To the nearest whole number, ties to even, as the C library does it in a call: larger ones have no
// fraction.
float rounded(float value) {
  constexpr float kWhole = 12582912.0F;  // 2^23 + 2^22
  return std::abs(value) < 4194304.0F ? value + kWhole - kWhole : value;
}

using FindParameters = Status (*)(Arguments&, Parameters*);

// quantized_decomposed::quantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min, int
// quant_max, ScalarType dtype, *, Tensor(a!) out) and the like: scale and zero point may be tensors, and
// quantize_per_channel.out has the axis before the range.
template <FindParameters kFind, std::size_t kRangeAt>
Status quantize(Arguments& arguments) {
  Parameters parameters;
  SLIPWAY_RETURN_IF_ERROR(kFind(arguments, &parameters));
  const auto low = static_cast<float>(arguments.integer(kRangeAt));
  const auto high = static_cast<float>(arguments.integer(kRangeAt + 1));
  return map_each(arguments.tensor(0), parameters, arguments.tensor(kRangeAt + 3),
                  [low, high](float value, float scale, float zero_point) {
                    const float inverse = 1.0F / scale;
                    return std::min(std::max(rounded(value * inverse) + zero_point, low), high);
                  });
}

// quantized_decomposed::dequantize_per_tensor.out(Tensor input, float scale, int zero_point, int quant_min,
// int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None, Tensor(a!) out) and the like
template <FindParameters kFind, std::size_t kOutAt>
Status dequantize(Arguments& arguments) {
  Parameters parameters;
  SLIPWAY_RETURN_IF_ERROR(kFind(arguments, &parameters));
  return map_each(arguments.tensor(0), parameters, arguments.tensor(kOutAt),
                  [](float value, float scale, float zero_point) { return (value - zero_point) * scale; });
}

struct Chosen {
  float scale;
  std::int64_t zero_point;
};

// Scale and zero point so that the range, with 0 in it, fills the integers, and 0 is one of them exactly.
Chosen choose(float low, float high, Range range, float least) {
  low = std::min(low, 0.0F);
  high = std::max(high, 0.0F);
  const auto min = static_cast<float>(range.low);
  const auto max = static_cast<float>(range.high);
  const float scale = std::max((high - low) / (max - min), least);
  const float from_low = min + low / scale;
  const float from_high = max + high / scale;
  const float zero_point = from_low + from_high > 0 ? min - low / scale : max - high / scale;
  return {scale, to_int64(std::nearbyint(std::min(std::max(zero_point, min), max)))};
}

// For each `width` elements.
void choose_each(const TensorView& in, std::size_t width, Range range, float least, TensorView& scales,
                 TensorView& zero_points) {
  const std::size_t rows = in.count() / width;
  std::vector<float> line(rows == 0 ? 0 : width);
  for (std::size_t row = 0; row < rows; ++row) {
    load(in.dtype, in.data + row * width * size_of(in.dtype), 1, width, line.data());
    const auto ends = std::minmax_element(line.begin(), line.end());
    const Chosen chosen = choose(*ends.first, *ends.second, range, least);
    store(scales.dtype, &chosen.scale, 1, scales.data + row * size_of(scales.dtype), 1);
    store(zero_points.dtype, &chosen.zero_point, 1, zero_points.data + row * size_of(zero_points.dtype), 1);
  }
}

Status choose_per_token(const TensorView& in, Unused /*dtype*/, TensorView& scales, TensorView& zero_points) {
  if (in.rank == 0 || !in.contiguous() || in.sizes[in.rank - 1U] == 0) {
    return mismatch("cannot choose a scale for each row of " + to_text(in.shape()));
  }
  Shape shape = in.shape();
  const auto width = static_cast<std::size_t>(shape.back());
  shape.back() = 1;
  SLIPWAY_RETURN_IF_ERROR(resize(&scales, shape));
  SLIPWAY_RETURN_IF_ERROR(resize(&zero_points, shape));
  choose_each(in, width, {-128, 127}, std::numeric_limits<float>::epsilon(), scales, zero_points);
  return {};
}

Status choose_qparams(const TensorView& in, std::int64_t least, std::int64_t most, double eps,
                      Unused /*dtype*/, TensorView& scale, TensorView& zero_point) {
  if (in.count() == 0 || scale.count() != 1 || zero_point.count() != 1) {
    return mismatch("cannot choose a scale for " + to_text(in.shape()));
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&scale, scale));
  SLIPWAY_RETURN_IF_ERROR(resize(&zero_point, zero_point));
  choose_each(in, in.count(), {least, most}, static_cast<float>(eps), scale, zero_point);
  return {};
}

// Tables of embeddings whose rows are cut into groups with a scale each.
template <int Bits>
Status embedding_of(const TensorView& weight, const TensorView& scales, const TensorView* zero_points,
                    Unused /*weight_quant_min*/, Unused /*weight_quant_max*/, const TensorView& indices,
                    TensorView& out) {
  constexpr std::size_t kPerByte = 8 / Bits;
  const std::size_t width = weight.rank == 2 ? static_cast<std::size_t>(weight.sizes[1]) * kPerByte : 0;
  const std::size_t groups = scales.rank == 2 ? static_cast<std::size_t>(scales.sizes[1]) : 1;
  const bool of_bytes = weight.dtype == DType::kUInt8 || weight.dtype == DType::kInt8;
  const bool fits = of_bytes && weight.rank == 2 && weight.contiguous() && scales.rank >= 1 &&
                    scales.rank <= 2 && groups != 0 && scales.sizes[0] == weight.sizes[0] &&
                    width % groups == 0 && out.contiguous() && indices.contiguous() &&
                    (zero_points == nullptr || zero_points->count() == scales.count());
  if (!fits) {
    return mismatch("a table of embeddings has the shape " + to_text(weight.shape()));
  }
  Shape shape = indices.shape();
  shape.push_back(static_cast<std::int64_t>(width));
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, shape), out);
  std::vector<std::int64_t> rows(indices.count());
  load(indices.dtype, indices.data, 1, rows.size(), rows.data());
  const std::vector<float> scale = elements_of<float>(scales);
  const std::vector<float> zero_point =
      zero_points == nullptr ? std::vector<float>() : elements_of<float>(*zero_points);
  std::vector<float> line(width);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= weight.sizes[0]) {
      return mismatch("index " + std::to_string(rows[i]) + " is outside the embeddings");
    }
    const auto row = static_cast<std::size_t>(rows[i]);
    const std::uint8_t* bytes = weight.data + row * (width / kPerByte);
    for (std::size_t k = 0; k < width; ++k) {
      float value = 0;
      if constexpr (Bits == 8) {
        value = weight.dtype == DType::kUInt8 ? static_cast<float>(bytes[k])
                                              : static_cast<float>(static_cast<std::int8_t>(bytes[k]));
      } else if constexpr (Bits == 2) {
        // The first number is in the lowest bits; 2 stands for 0.
        value = static_cast<float>(bytes[k / 4] >> 2U * (k % 4) & 3U) - 2.0F;
      } else {
        // The first number is in the upper half; 8 stands for 0.
        const unsigned stored = k % 2 == 0 ? bytes[k / 2] >> 4U : bytes[k / 2] & 0xfU;
        value = static_cast<float>(stored) - 8.0F;
      }
      const std::size_t group = row * groups + k / (width / groups);
      line[k] = (value - (zero_point.empty() ? 0.0F : zero_point[group])) * scale[group];
    }
    store(out.dtype, line.data(), width, out.data + i * width * size_of(out.dtype), 1);
  }
  return {};
}

template <int Bits>
Status embedding_as(const TensorView& weight, const TensorView& scales, const TensorView* zero_points,
                    Unused low, Unused high, const TensorView& indices, Unused /*dtype*/, TensorView& out) {
  return embedding_of<Bits>(weight, scales, zero_points, low, high, indices, out);
}

Status add_quantized(const TensorView& a, double a_scale, double a_zero, Unused /*a_quant_min*/,
                     Unused /*a_quant_max*/, const TensorView& b, double b_scale, double b_zero,
                     Unused /*b_quant_min*/, Unused /*b_quant_max*/, double out_scale, double out_zero,
                     double low, double high, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize_to_all({&a, &b}, &out));
  const float inverse = 1.0F / static_cast<float>(out_scale);
  const auto real = [](double scale, double zero) {
    return [of = static_cast<float>(scale), at = static_cast<float>(zero)](float x) { return (x - at) * of; };
  };
  map<In::kSingle>(out, Views<2>{&a, &b}, DType::kFloat32,
                   [=, real_a = real(a_scale, a_zero), real_b = real(b_scale, b_zero)](float x, float y) {
                     const float rounded =
                         std::nearbyint((real_a(x) + real_b(y)) * inverse) + static_cast<float>(out_zero);
                     return std::min(std::max(rounded, static_cast<float>(low)), static_cast<float>(high));
                   });
  return {};
}

// A weight of integers as floats. Each row has a scale, or one for each of the groups it is cut into.
Result<std::vector<float>> weight_of(const TensorView& weight, const TensorView& scales,
                                     const TensorView* zero_points) {
  const std::size_t groups = scales.rank == 2 ? static_cast<std::size_t>(scales.sizes[1]) : 1;
  if (weight.rank != 2 || scales.rank < 1 || scales.rank > 2 || scales.sizes[0] != weight.sizes[0] ||
      groups == 0 || (zero_points != nullptr && zero_points->count() != scales.count())) {
    return mismatch("scales of " + to_text(scales.shape()) + " do not fit a weight of " +
                    to_text(weight.shape()));
  }
  std::vector<float> values = elements_of<float>(weight);
  const std::vector<float> scale = elements_of<float>(scales);
  const std::vector<float> zero =
      zero_points == nullptr ? std::vector<float>(scale.size()) : elements_of<float>(*zero_points);
  const auto width = static_cast<std::size_t>(weight.sizes[1]);
  const std::size_t group = (width + groups - 1) / groups;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t at = i / width * groups + i % width / group;
    values[i] = (values[i] - zero[at]) * scale[at];
  }
  return values;
}

// In (m x k) times the weight, which is k x n, or n x k if it is transposed.
template <bool transposed>
Status mixed_mm(const TensorView& in, const TensorView& weight, const TensorView& scales,
                const TensorView* zero_points, TensorView& out) {
  SLIPWAY_TRY(const std::vector<float> factors, weight_of(weight, scales, zero_points));
  const std::int64_t inner = weight.sizes[transposed ? 1 : 0];
  if (in.rank == 0 || in.sizes[in.rank - 1U] != inner) {
    return mismatch("cannot multiply " + to_text(in.shape()) + " with " + to_text(weight.shape()));
  }
  Shape shape = in.shape();
  shape.back() = weight.sizes[transposed ? 0 : 1];
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, shape), out);
  const auto n = static_cast<std::size_t>(shape.back());
  const Values<float> values(in);
  Values<float> result(out, {&values});
  multiply(values.data(), factors.data(), {out.count() / n, static_cast<std::size_t>(inner), n, transposed},
           false, result.data());
  result.put(out);
  return {};
}

Status mixed_linear(const TensorView& in, const TensorView& weight, const TensorView& scales,
                    const TensorView* zero_points, Unused /*dtype*/, TensorView& out) {
  return mixed_mm<true>(in, weight, scales, zero_points, out);
}

}  // namespace

constexpr KernelTable kQuantizedKernels = {
    {"quantized_decomposed::add.out", typed<add_quantized>, Sharing::kEach},
    {"quantized_decomposed::choose_qparams.Tensor_out", typed<choose_qparams>},
    {"quantized_decomposed::choose_qparams_per_token_asymmetric.out", typed<choose_per_token>},
    {"quantized_decomposed::dequantize_per_channel.out", {dequantize<per_channel, 8>, 9}},
    {"quantized_decomposed::dequantize_per_tensor.Tensor_out", {dequantize<per_tensor_of_tensors, 7>, 8}},
    {"quantized_decomposed::dequantize_per_tensor.out", {dequantize<per_tensor, 7>, 8}},
    {"quantized_decomposed::dequantize_per_token.out", {dequantize<per_token, 7>, 8}},
    {"quantized_decomposed::embedding_2bit.dtype_out", typed<embedding_as<2>>},
    {"quantized_decomposed::embedding_2bit.out", typed<embedding_of<2>>},
    {"quantized_decomposed::embedding_4bit.dtype_out", typed<embedding_as<4>>},
    {"quantized_decomposed::embedding_4bit.out", typed<embedding_of<4>>},
    {"quantized_decomposed::embedding_byte.dtype_out", typed<embedding_as<8>>},
    {"quantized_decomposed::embedding_byte.out", typed<embedding_of<8>>},
    {"quantized_decomposed::mixed_linear.out", typed<mixed_linear>},
    {"quantized_decomposed::mixed_mm.out", typed<mixed_mm<false>>},
    {"quantized_decomposed::quantize_per_channel.out", {quantize<per_channel, 4>, 8}},
    {"quantized_decomposed::quantize_per_tensor.Tensor_out", {quantize<per_tensor_of_tensors, 3>, 7}},
    {"quantized_decomposed::quantize_per_tensor.out", {quantize<per_tensor, 3>, 7}},
    {"quantized_decomposed::quantize_per_token.out", {quantize<per_token, 3>, 7}},
};

}  // namespace slipway::lean
