#include <algorithm>
#include <cmath>
#include <memory>

#include "problem.h"

namespace proof {
namespace {

constexpr int kInputZeroPoint = -5;
constexpr float kInputScale = 0.0125f;

struct Data {
  std::vector<std::int8_t> weights;
  std::vector<std::int32_t> bias;
  std::vector<float> scales, bias_scales;
  float output_scale = 1;
  int output_zero_point = 0;
};

// Output steps such that the outputs cover their range and a few per cent of them are clipped.
void ChooseOutputScale(const std::vector<double>& sums, Data* data) {
  const auto [low, high] = std::minmax_element(sums.begin(), sums.end());
  data->output_scale = static_cast<float>((*high - *low) / 270);
  const double middle = (*high + *low) / 2 / data->output_scale;
  data->output_zero_point = static_cast<int>(std::min(std::max(std::nearbyint(-middle), -128.0), 127.0));
}

xnn_status DefineEnds(xnn_subgraph_t subgraph, const Layer& layer, const Data& data) {
  std::uint32_t id = XNN_INVALID_VALUE_ID;
  const std::vector<std::size_t> input = layer.InputShape(), output = layer.OutputShape();
  const xnn_status status = xnn_define_quantized_tensor_value(
      subgraph, xnn_datatype_qint8, kInputZeroPoint, kInputScale, input.size(), input.data(), nullptr, kInput,
      XNN_VALUE_FLAG_EXTERNAL_INPUT, &id);
  if (status != xnn_status_success) return status;
  return xnn_define_quantized_tensor_value(subgraph, xnn_datatype_qint8, data.output_zero_point,
                                           data.output_scale, output.size(), output.data(), nullptr, kOutput,
                                           XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &id);
}

xnn_status DefineWeights(xnn_subgraph_t subgraph, const Layer& layer, const Data& data, bool per_channel,
                         std::uint32_t* weights, std::uint32_t* bias) {
  const std::vector<std::size_t> shape = layer.WeightShape();
  if (per_channel) {
    const xnn_status status = xnn_define_channelwise_quantized_tensor_value(
        subgraph, xnn_datatype_qcint8, data.scales.data(), shape.size(), layer.ChannelDimension(),
        shape.data(), data.weights.data(), XNN_INVALID_VALUE_ID, 0, weights);
    if (status != xnn_status_success) return status;
    return xnn_define_channelwise_quantized_tensor_value(subgraph, xnn_datatype_qcint32,
                                                         data.bias_scales.data(), 1, 0, &layer.outputs,
                                                         data.bias.data(), XNN_INVALID_VALUE_ID, 0, bias);
  }
  const xnn_status status =
      xnn_define_quantized_tensor_value(subgraph, xnn_datatype_qint8, 0, data.scales[0], shape.size(),
                                        shape.data(), data.weights.data(), XNN_INVALID_VALUE_ID, 0, weights);
  if (status != xnn_status_success) return status;
  return xnn_define_quantized_tensor_value(subgraph, xnn_datatype_qint32, 0, data.bias_scales[0], 1,
                                           &layer.outputs, data.bias.data(), XNN_INVALID_VALUE_ID, 0, bias);
}

void FillData(const Layer& layer, bool per_channel, Random* random, Data* data) {
  for (std::size_t i = 0; i < layer.WeightElements(); ++i) {
    // -128 is left out, as quantizers do: some kernels add two products in 16 bits.
    data->weights.push_back(static_cast<std::int8_t>(random->Integer(-127, 127)));
  }
  for (std::size_t channel = 0; channel < layer.outputs; ++channel) {
    const bool own = per_channel || channel == 0;
    data->scales.push_back(own ? random->Uniform(0.004f, 0.012f) : data->scales[0]);
    data->bias_scales.push_back(data->scales.back() * kInputScale);
    data->bias.push_back(random->Integer(-20000, 20000));
  }
}

}  // namespace

Problem StaticProblem(const Layer& layer, bool per_channel) {
  Random random(3);
  auto data = std::make_shared<Data>();
  FillData(layer, per_channel, &random, data.get());
  std::vector<std::int8_t> input(layer.InputElements());
  for (std::int8_t& value : input) value = static_cast<std::int8_t>(random.Integer(-128, 127));

  Problem problem;
  problem.op = layer.OpName();
  problem.dtype = per_channel ? "qs8_qc8w" : "qs8";
  problem.shape = layer.ShapeName();
  problem.input = ToBytes(input);
  // The nearest integer is half a step away at most; the rest is for multipliers in float or fixed point.
  problem.tolerance = 0.5 + 1.0 / 64;
  problem.define = [layer, data, per_channel](xnn_subgraph_t subgraph) {
    xnn_status status = DefineEnds(subgraph, layer, *data);
    if (status != xnn_status_success) return status;
    std::uint32_t weights = XNN_INVALID_VALUE_ID, bias = XNN_INVALID_VALUE_ID;
    status = DefineWeights(subgraph, layer, *data, per_channel, &weights, &bias);
    return status == xnn_status_success ? layer.Define(subgraph, kInput, weights, bias, kOutput) : status;
  };
  layer.ForEachOutput([&](std::size_t, std::size_t channel, const auto& taps) {
    std::int64_t sum = data->bias[channel];
    taps([&](std::size_t i, std::size_t w) { sum += (input[i] - kInputZeroPoint) * data->weights[w]; });
    problem.expected.push_back(static_cast<double>(sum) * kInputScale * data->scales[channel]);
  });
  ChooseOutputScale(problem.expected, data.get());
  for (double& value : problem.expected) {
    value = std::min(std::max(value / data->output_scale + data->output_zero_point, -128.0), 127.0);
  }
  return problem;
}

}  // namespace proof
