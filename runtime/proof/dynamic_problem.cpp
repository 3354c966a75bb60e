#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "problem.h"

namespace proof {
namespace {

// How one row (or one image) of float activations is made 8-bit at run time: real = (q - zero_point) / scale.
struct RowQuantization {
  float scale = 1;
  int zero_point = 0;
};

constexpr float kLeast = -128;
constexpr float kMost = 127;

// Whether every way to round gives the same integer.
bool Clear(float value) {
  const float below = std::floor(value);
  return std::fabs(value - below - 0.5f) > 1.0f / 64;
}

float ZeroPointBeforeRounding(float low, float high, float scale) {
  const float from_low = low * scale, from_high = high * scale;
  const bool low_end_is_nearer = (kLeast + from_low) + (kMost + from_high) > 0;
  const float zero_point = low_end_is_nearer ? kLeast - from_low : kMost - from_high;
  return std::min(std::max(zero_point, kLeast), kMost);
}

struct Range {
  float low = 0, high = 0;
};

// The extremes, zero always among them.
Range RangeOf(const float* row, std::size_t count) {
  Range range;
  for (std::size_t i = 0; i < count; ++i) {
    range.low = std::min(range.low, row[i]);
    range.high = std::max(range.high, row[i]);
  }
  return range;
}

float ScaleOf(const Range& range) {
  return range.low == range.high ? 1.0f : (kMost - kLeast) / (range.high - range.low);
}

// Asymmetric, as XNNPACK and KleidiAI choose it: zero is representable, the row's extremes span -128 to 127,
// and the zero point comes from whichever end has the smaller error. In float, as they compute it.
RowQuantization ChooseQuantization(const float* row, std::size_t count) {
  const Range range = RangeOf(row, count);
  const float scale = ScaleOf(range);
  const float zero_point = ZeroPointBeforeRounding(range.low, range.high, scale);
  return {scale, static_cast<int>(std::nearbyint(zero_point))};
}

// q for one value.
int Quantize(float value, const RowQuantization& how) {
  const int rounded = static_cast<int>(std::nearbyint(value * how.scale)) + how.zero_point;
  return std::min(std::max(rounded, -128), 127);
}

// A row whose quantization does not depend on how an implementation rounds: no element (and no zero point)
// lies within 1/64 of the middle between two integers. So the reference can ask for exactly the same
// integers.
std::vector<float> QuantizableRow(Random* random, std::size_t count, float low, float high) {
  std::vector<float> row(count);
  for (;;) {
    for (float& value : row) value = random->Uniform(low, high);
    const Range range = RangeOf(row.data(), count);
    const float scale = ScaleOf(range);
    bool clear = Clear(ZeroPointBeforeRounding(range.low, range.high, scale));
    for (float& value : row) {
      const bool extreme = value == range.low || value == range.high;
      if (extreme) {
        clear = clear && Clear(value * scale);
        continue;
      }
      while (!Clear(value * scale)) value = random->Uniform(range.low, range.high);
    }
    if (clear) return row;
  }
}

// 4-bit weights of one row, two a byte, the even one in the low bits, as they lie in memory. With zero point
// 8 the stored number is weight + 8, with 0 it is the weight's two's complement. The count is even.
void PackInt4(const int* weights, std::size_t count, int zero_point, std::vector<std::uint8_t>* packed) {
  for (std::size_t k = 0; k < count; k += 2) {
    const auto even = static_cast<unsigned>(weights[k] + zero_point) & 15u;
    const auto odd = static_cast<unsigned>(weights[k + 1] + zero_point) & 15u;
    packed->push_back(static_cast<std::uint8_t>(even | odd << 4));
  }
}

// From XNNPACK's src/xnnpack/internal.h: let the conversion pack for a KleidiAI GEMM with 4-bit weights, per
// channel or per block.
constexpr std::uint32_t kMaybePackForGemm = 0x80;
constexpr std::uint32_t kMaybePackForBlockwiseGemm = 0x100;

struct Data {
  Weights kind = Weights::kInt8PerChannel;
  int zero_point = 0;
  std::size_t block = 0;
  std::vector<int> values;
  std::vector<std::uint8_t> stored;
  std::vector<float> scales;
  std::vector<std::uint16_t> block_scales;
  std::vector<float> bias;
};

void FillWeights(const Layer& layer, Random* random, Data* data) {
  const bool wide = data->kind == Weights::kInt8PerChannel;
  const std::size_t per_channel = layer.WeightElements() / layer.outputs;
  for (std::size_t i = 0; i < layer.WeightElements(); ++i) {
    data->values.push_back(wide ? random->Integer(-127, 127) : random->Integer(-8, 7));
  }
  if (wide) {
    for (int value : data->values) data->stored.push_back(static_cast<std::uint8_t>(value));
  } else {
    for (std::size_t row = 0; row < layer.outputs; ++row) {
      PackInt4(data->values.data() + row * per_channel, per_channel, data->zero_point, &data->stored);
    }
  }
  const std::size_t blocks = data->block ? per_channel / data->block : 1;
  for (std::size_t i = 0; i < layer.outputs * blocks; ++i) {
    const float scale = wide ? random->Uniform(0.004f, 0.012f) : random->Uniform(0.06f, 0.18f);
    if (data->block) data->block_scales.push_back(ToBfloat16(scale));
    data->scales.push_back(data->block ? FromBfloat16(data->block_scales.back()) : scale);
  }
  for (std::size_t i = 0; i < layer.outputs; ++i) data->bias.push_back(random->Uniform(-1, 1));
}

xnn_status DefineWeights(xnn_subgraph_t subgraph, const Layer& layer, const Data& data, std::uint32_t* id) {
  const std::vector<std::size_t> shape = layer.WeightShape();
  if (data.kind == Weights::kInt4PerBlock) {
    return xnn_define_blockwise_quantized_tensor_value(
        subgraph, xnn_datatype_qbint4, data.zero_point, data.block_scales.data(), shape.size(),
        layer.ChannelDimension(), data.block, shape.data(), data.stored.data(), XNN_INVALID_VALUE_ID, 0, id);
  }
  const xnn_datatype type = data.kind == Weights::kInt4PerChannel ? xnn_datatype_qcint4 : xnn_datatype_qcint8;
  return xnn_define_channelwise_quantized_tensor_value_v2(
      subgraph, type, data.zero_point, data.scales.data(), shape.size(), layer.ChannelDimension(),
      shape.data(), data.stored.data(), XNN_INVALID_VALUE_ID, 0, id);
}

// Input -> quantized at run time -> layer -> output.
xnn_status DefineGraph(xnn_subgraph_t subgraph, const Layer& layer, const Data& data, bool for_kleidiai) {
  const std::vector<std::size_t> input = layer.InputShape(), output = layer.OutputShape();
  std::uint32_t id = XNN_INVALID_VALUE_ID, quantized = XNN_INVALID_VALUE_ID;
  std::uint32_t weights = XNN_INVALID_VALUE_ID, bias = XNN_INVALID_VALUE_ID;
  xnn_status status = xnn_define_tensor_value(subgraph, xnn_datatype_fp32, input.size(), input.data(),
                                              nullptr, kInput, XNN_VALUE_FLAG_EXTERNAL_INPUT, &id);
  if (status != xnn_status_success) return status;
  status = xnn_define_tensor_value(subgraph, xnn_datatype_fp32, output.size(), output.data(), nullptr,
                                   kOutput, XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &id);
  if (status != xnn_status_success) return status;
  // One set of parameters a row of a fully-connected layer, or an image of a convolution.
  status = xnn_define_dynamically_quantized_tensor_value(subgraph, xnn_datatype_qdint8, input.size(),
                                                         input.size() - 1, input.data(), XNN_INVALID_VALUE_ID,
                                                         0, &quantized);
  if (status != xnn_status_success) return status;
  const std::uint32_t pack =
      data.kind == Weights::kInt4PerBlock ? kMaybePackForBlockwiseGemm : kMaybePackForGemm;
  status = xnn_define_unary(subgraph, xnn_unary_convert, nullptr, kInput, quantized, for_kleidiai ? pack : 0);
  if (status != xnn_status_success) return status;
  status = DefineWeights(subgraph, layer, data, &weights);
  if (status != xnn_status_success) return status;
  status = xnn_define_tensor_value(subgraph, xnn_datatype_fp32, 1, &layer.outputs, data.bias.data(),
                                   XNN_INVALID_VALUE_ID, 0, &bias);
  if (status != xnn_status_success) return status;
  return layer.Define(subgraph, quantized, weights, bias, kOutput);
}

std::string TypeName(Weights weights, bool for_kleidiai) {
  const std::string activations = for_kleidiai ? "qp8" : "qd8";
  if (weights == Weights::kInt8PerChannel) return activations + "_qc8w";
  return activations + (weights == Weights::kInt4PerChannel ? "_qc4w" : "_qb4w");
}

struct Activations {
  std::vector<float> values;
  std::vector<int> quantized;
  std::vector<RowQuantization> rows;
};

Activations MakeActivations(const Layer& layer, Random* random) {
  Activations made;
  for (std::size_t n = 0; n < layer.batch; ++n) {
    const std::vector<float> row = QuantizableRow(random, layer.ImageElements(), -0.9f, 1.1f);
    made.rows.push_back(ChooseQuantization(row.data(), row.size()));
    for (float value : row) made.quantized.push_back(Quantize(value, made.rows.back()));
    made.values.insert(made.values.end(), row.begin(), row.end());
  }
  return made;
}

}  // namespace

Problem DynamicProblem(const Layer& layer, Weights weights, int zero_point, std::size_t block,
                       bool for_kleidiai) {
  Random random(4);
  auto data = std::make_shared<Data>();
  data->kind = weights;
  data->zero_point = zero_point;
  data->block = block;
  FillWeights(layer, &random, data.get());
  const Activations input = MakeActivations(layer, &random);

  Problem problem;
  problem.op = layer.OpName();
  problem.dtype = TypeName(weights, for_kleidiai);
  problem.shape = layer.ShapeName();
  problem.input = ToBytes(input.values);
  // The quantized products are exact; only scaling, the blocks' sums and the bias are rounded, in single
  // precision.
  problem.tolerance = 8.0 / (1 << 24);
  problem.define = [layer, data, for_kleidiai](xnn_subgraph_t subgraph) {
    return DefineGraph(subgraph, layer, *data, for_kleidiai);
  };
  layer.ForEachOutput([&](std::size_t image, std::size_t channel, const auto& taps) {
    const RowQuantization& row = input.rows[image];
    double sum = 0, magnitude = 0;
    taps([&](std::size_t i, std::size_t w) {
      const double weight = static_cast<double>(data->values[w]) *
                            data->scales[data->block ? w / data->block : layer.ChannelOf(w)];
      sum += (input.quantized[i] - row.zero_point) * weight;
      magnitude += (std::abs(input.quantized[i]) + std::abs(row.zero_point)) * std::fabs(weight);
    });
    problem.expected.push_back(sum / row.scale + data->bias[channel]);
    problem.magnitude.push_back(magnitude / row.scale + std::fabs(data->bias[channel]));
  });
  return problem;
}

}  // namespace proof
