#include <algorithm>
#include <cmath>
#include <memory>

#include "problem.h"

namespace proof {
namespace {

// Half the spacing of the numbers around 1: the relative error of one rounding.
constexpr double kSingle = 1.0 / (1 << 24);
constexpr double kHalf = 1.0 / (1 << 11);
// Rounding errors of a sum of products partly cancel; 8 roundings of the sum of magnitudes are seldom reached
// and never by a right kernel here, while one lost product of some hundred is far above.
constexpr double kRoundings = 8;

struct Data {
  std::vector<float> weights, bias;
};

std::uint32_t RuntimeFlags(Half half) {
  if (half == Half::kNo) return 0;
  return half == Half::kHint ? XNN_FLAG_HINT_FP16_INFERENCE : XNN_FLAG_FORCE_FP16_INFERENCE;
}

std::string TypeName(Half half) {
  if (half == Half::kNo) return "f32";
  return half == Half::kHint ? "f16_hint" : "f16_force";
}

std::vector<float> Numbers(Random* random, std::size_t count, float low, float high, Half half) {
  std::vector<float> numbers(count);
  for (float& value : numbers) {
    value = random->Uniform(low, high);
    if (half != Half::kNo) value = RoundToHalf(value);
  }
  return numbers;
}

xnn_status DefineEnds(xnn_subgraph_t subgraph, const std::vector<std::size_t>& input,
                      const std::vector<std::size_t>& output) {
  std::uint32_t id = XNN_INVALID_VALUE_ID;
  const xnn_status status = xnn_define_tensor_value(subgraph, xnn_datatype_fp32, input.size(), input.data(),
                                                    nullptr, kInput, XNN_VALUE_FLAG_EXTERNAL_INPUT, &id);
  if (status != xnn_status_success) return status;
  return xnn_define_tensor_value(subgraph, xnn_datatype_fp32, output.size(), output.data(), nullptr, kOutput,
                                 XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &id);
}

xnn_status DefineLayer(xnn_subgraph_t subgraph, const Layer& layer, const Data& data) {
  xnn_status status = DefineEnds(subgraph, layer.InputShape(), layer.OutputShape());
  if (status != xnn_status_success) return status;
  std::uint32_t weights = XNN_INVALID_VALUE_ID, bias = XNN_INVALID_VALUE_ID;
  const std::vector<std::size_t> shape = layer.WeightShape();
  status = xnn_define_tensor_value(subgraph, xnn_datatype_fp32, shape.size(), shape.data(),
                                   data.weights.data(), XNN_INVALID_VALUE_ID, 0, &weights);
  if (status != xnn_status_success) return status;
  status = xnn_define_tensor_value(subgraph, xnn_datatype_fp32, 1, &layer.outputs, data.bias.data(),
                                   XNN_INVALID_VALUE_ID, 0, &bias);
  if (status != xnn_status_success) return status;
  return layer.Define(subgraph, kInput, weights, bias, kOutput);
}

}  // namespace

Problem FloatProblem(const Layer& layer, Half half) {
  Random random(1);
  auto data = std::make_shared<Data>();
  const std::vector<float> input = Numbers(&random, layer.InputElements(), -0.9f, 1.1f, half);
  data->weights = Numbers(&random, layer.WeightElements(), -1, 1, half);
  data->bias = Numbers(&random, layer.outputs, -1, 1, half);

  Problem problem;
  problem.op = layer.OpName();
  problem.dtype = TypeName(half);
  problem.shape = layer.ShapeName();
  problem.runtime_flags = RuntimeFlags(half);
  problem.input = ToBytes(input);
  problem.tolerance = kRoundings * (half == Half::kNo ? kSingle : kHalf);
  problem.define = [layer, data](xnn_subgraph_t subgraph) { return DefineLayer(subgraph, layer, *data); };
  layer.ForEachOutput([&](std::size_t, std::size_t channel, const auto& taps) {
    double sum = data->bias[channel], magnitude = std::fabs(sum);
    taps([&](std::size_t i, std::size_t w) {
      const double product = static_cast<double>(input[i]) * data->weights[w];
      sum += product;
      magnitude += std::fabs(product);
    });
    problem.expected.push_back(
        std::min(std::max(sum, static_cast<double>(layer.least)), static_cast<double>(layer.most)));
    problem.magnitude.push_back(magnitude);
  });
  return problem;
}

Problem SoftmaxProblem(std::size_t rows, std::size_t channels, Half half) {
  Random random(2);
  // XNNPACK's threads flush numbers below the normal ones to zero. In half precision that is everything below
  // 2^-14: the inputs' span keeps the outputs, and what exp is made of, well above it.
  const bool single = half == Half::kNo;
  const std::vector<float> input =
      Numbers(&random, rows * channels, single ? -6.0f : -2.0f, single ? 4.0f : 2.0f, half);

  Problem problem;
  problem.op = "softmax";
  problem.dtype = TypeName(half);
  problem.shape = "m" + std::to_string(rows) + "_n" + std::to_string(channels);
  problem.runtime_flags = RuntimeFlags(half);
  problem.input = ToBytes(input);
  // x - max is rounded before exp makes that a relative error, and x - max is up to 10; then the sum is
  // rounded once a channel, of which much cancels out.
  const double roundings = 2 * kRoundings + std::sqrt(static_cast<double>(channels));
  problem.tolerance = roundings * (single ? kSingle : kHalf);
  problem.define = [rows, channels](xnn_subgraph_t subgraph) {
    const xnn_status status = DefineEnds(subgraph, {rows, channels}, {rows, channels});
    return status == xnn_status_success ? xnn_define_softmax(subgraph, kInput, kOutput, 0) : status;
  };
  for (std::size_t row = 0; row < rows; ++row) {
    const float* first = input.data() + row * channels;
    const double greatest = *std::max_element(first, first + channels);
    double sum = 0;
    for (std::size_t i = 0; i < channels; ++i) sum += std::exp(first[i] - greatest);
    for (std::size_t i = 0; i < channels; ++i) {
      const double share = std::exp(first[i] - greatest) / sum;
      problem.expected.push_back(share);
      problem.magnitude.push_back(share);
    }
  }
  return problem;
}

}  // namespace proof
