#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "layer.h"

namespace proof {

// External values of every subgraph.
constexpr std::uint32_t kInput = 0;
constexpr std::uint32_t kOutput = 1;

// How half precision is asked for: not at all; where the CPU computes in it; or else not at all, emulated on
// x86.
enum class Half { kNo, kHint, kForce };

// How the weights of a dynamically quantized layer are stored.
enum class Weights { kInt8PerChannel, kInt4PerChannel, kInt4PerBlock };

// What XNNPACK is given, and what must come out.
struct Problem {
  std::string op, dtype, shape;
  std::uint32_t runtime_flags = 0;
  std::vector<std::uint8_t> input;
  // Adds values and nodes between kInput and kOutput. It owns the weights: XNNPACK only borrows them.
  std::function<xnn_status(xnn_subgraph_t)> define;

  // What the outputs must be, from double accumulators. Float outputs are off by |got - expected| /
  // magnitude, where magnitude is what rounding errors grow with: the sum of the products' absolute values,
  // or the value itself. 8-bit outputs (magnitude is empty then) are off by their distance from the unrounded
  // number.
  std::vector<double> expected, magnitude;
  double tolerance = 0;
};

// Half-precision data is exact in half precision, so that the same numbers must come out where XNNPACK does
// not take the hint.
Problem FloatProblem(const Layer& layer, Half half);
// Static 8-bit quantization of activations; weights with one scale, or one per output channel.
Problem StaticProblem(const Layer& layer, bool per_channel);
// 8-bit activations quantized at run time, float outputs. Weights of 4 bits have the given zero point, 8 or
// 0. With for_kleidiai the conversion carries XNNPACK's internal flag without which KleidiAI is never taken.
Problem DynamicProblem(const Layer& layer, Weights weights, int zero_point, std::size_t block,
                       bool for_kleidiai);
Problem SoftmaxProblem(std::size_t rows, std::size_t channels, Half half);

// How far off the output is where it is most; infinite for a NaN.
struct Error {
  double most = 0;
  std::size_t index = 0;
  double got = 0;
};
Error ErrorOf(const Problem& problem, const std::uint8_t* output);
std::size_t OutputBytes(const Problem& problem);

}  // namespace proof
