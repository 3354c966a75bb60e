#include "problem.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace proof {
namespace {

double OutputAt(const Problem& problem, const std::uint8_t* output, std::size_t index) {
  if (problem.magnitude.empty()) return static_cast<std::int8_t>(output[index]);
  float value = 0;
  std::memcpy(&value, output + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

Error ErrorOf(const Problem& problem, const std::uint8_t* output) {
  Error worst;
  for (std::size_t i = 0; i < problem.expected.size(); ++i) {
    const double got = OutputAt(problem, output, i);
    double error = std::fabs(got - problem.expected[i]);
    if (!problem.magnitude.empty() && error != 0) error /= problem.magnitude[i];
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (i == 0 || error > worst.most) worst = {error, i, got};
  }
  return worst;
}

std::size_t OutputBytes(const Problem& problem) {
  return problem.expected.size() * (problem.magnitude.empty() ? 1 : sizeof(float));
}

std::uint64_t Random::Bits() {
  std::uint64_t bits = (state_ += 0x9E3779B97F4A7C15u);
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  return bits ^ (bits >> 31);
}

float Random::Uniform(float low, float high) {
  const double share = static_cast<double>(Bits() >> 40) / 16777216.0;
  return static_cast<float>(low + (static_cast<double>(high) - low) * share);
}

int Random::Integer(int low, int high) {
  const auto count = static_cast<std::uint64_t>(high - low + 1);
  return low + static_cast<int>((Bits() >> 32) % count);
}

float RoundToHalf(float value) {
  if (value == 0.0f) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  // 11 significant bits; below 2^-14 the spacing stays 2^-24.
  const int unit = exponent - 11 < -24 ? -24 : exponent - 11;
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(value), -unit)), unit));
}

std::uint16_t ToBfloat16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits += 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

float FromBfloat16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::vector<std::size_t> Layer::InputShape() const {
  if (kind == Kind::kFullyConnected) return {batch, inputs};
  return {batch, height, width, inputs};
}

std::vector<std::size_t> Layer::OutputShape() const {
  if (kind == Kind::kFullyConnected) return {batch, outputs};
  return {batch, OutputHeight(), OutputWidth(), outputs};
}

std::vector<std::size_t> Layer::WeightShape() const {
  if (kind == Kind::kFullyConnected) return {outputs, inputs};
  if (kind == Kind::kDepthwise) return {1, kernel, kernel, outputs};
  return {outputs, kernel, kernel, InputsPerGroup()};
}

std::string Layer::OpName() const {
  if (kind == Kind::kFullyConnected) return "fully_connected";
  return kind == Kind::kDepthwise ? "depthwise_convolution" : "convolution";
}

std::string Layer::ShapeName() const {
  const auto text = [](std::size_t value) { return std::to_string(value); };
  if (kind == Kind::kFullyConnected) {
    return "m" + text(batch) + "_k" + text(inputs) + "_n" + text(outputs);
  }
  std::string name = text(kernel) + "x" + text(kernel);
  if (stride > 1) name += "s" + text(stride);
  if (groups > 1 && kind == Kind::kConvolution) name += "g" + text(groups);
  name += "_c" + text(inputs);
  return kind == Kind::kDepthwise ? name : name + "_o" + text(outputs);
}

xnn_status Layer::Define(xnn_subgraph_t subgraph, std::uint32_t input, std::uint32_t weights,
                         std::uint32_t bias, std::uint32_t output) const {
  const auto k = static_cast<std::uint32_t>(kernel), s = static_cast<std::uint32_t>(stride);
  const auto p = static_cast<std::uint32_t>(padding);
  switch (kind) {
    case Kind::kFullyConnected:
      return xnn_define_fully_connected(subgraph, least, most, input, weights, bias, output, 0);
    case Kind::kDepthwise:
      return xnn_define_depthwise_convolution_2d(subgraph, p, p, p, p, k, k, s, s, 1, 1, 1, inputs, least,
                                                 most, input, weights, bias, output, 0);
    case Kind::kConvolution:
      return xnn_define_convolution_2d(subgraph, p, p, p, p, k, k, s, s, 1, 1,
                                       static_cast<std::uint32_t>(groups), InputsPerGroup(), outputs / groups,
                                       least, most, input, weights, bias, output, 0);
  }
  return xnn_status_invalid_parameter;
}

}  // namespace proof
