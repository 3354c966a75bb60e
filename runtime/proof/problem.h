#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace proof {

// The same numbers on every machine: splitmix64, with no library's distributions in between.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Bits();
  // Uniform in [low, high), on a grid of 2^-24 of the span.
  float Uniform(float low, float high);
  // Uniform among the integers from low to high, both included.
  int Integer(int low, int high);

 private:
  std::uint64_t state_;
};

// The nearest IEEE half-precision number, ties to even, as float; magnitudes above 65504 are not meant for
// it.
float RoundToHalf(float value);

// The upper half of a float, the nearest of them: bfloat16's bits, and what they stand for.
std::uint16_t ToBfloat16(float value);
float FromBfloat16(std::uint16_t bits);

// Bytes of a buffer that XNNPACK reads: it may read this much past the end (XNN_EXTRA_BYTES is 16 on CPUs).
constexpr std::size_t kReadPastEnd = 64;

// Copies elements to bytes, with room to read past their end.
template <typename T>
std::vector<std::uint8_t> ToBytes(const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(values.data());
  std::vector<std::uint8_t> bytes(first, first + values.size() * sizeof(T));
  bytes.resize(bytes.size() + kReadPastEnd);
  return bytes;
}

// A fully-connected layer or a 2D convolution (NHWC), with square kernels, strides and padding.
struct Layer {
  enum class Kind { kFullyConnected, kConvolution, kDepthwise };

  Kind kind = Kind::kFullyConnected;
  std::size_t batch = 1, height = 1, width = 1;
  std::size_t inputs = 1, outputs = 1;
  std::size_t kernel = 1, stride = 1, padding = 0, groups = 1;
  float least = -std::numeric_limits<float>::infinity();
  float most = std::numeric_limits<float>::infinity();

  std::size_t OutputHeight() const { return (height + 2 * padding - kernel) / stride + 1; }
  std::size_t OutputWidth() const { return (width + 2 * padding - kernel) / stride + 1; }
  // Elements of one image (or row), and of the whole tensors.
  std::size_t ImageElements() const { return height * width * inputs; }
  std::size_t InputElements() const { return batch * ImageElements(); }
  std::size_t OutputElements() const { return batch * OutputHeight() * OutputWidth() * outputs; }
  std::size_t WeightElements() const { return outputs * kernel * kernel * InputsPerGroup(); }
  std::size_t InputsPerGroup() const { return kind == Kind::kDepthwise ? 1 : inputs / groups; }

  std::vector<std::size_t> InputShape() const;
  std::vector<std::size_t> OutputShape() const;
  std::vector<std::size_t> WeightShape() const;
  // The weights' dimension that counts output channels, and the channel of a weight.
  std::size_t ChannelDimension() const { return kind == Kind::kDepthwise ? 3 : 0; }
  std::size_t ChannelOf(std::size_t weight) const {
    return kind == Kind::kDepthwise ? weight % outputs : weight / (WeightElements() / outputs);
  }

  std::string OpName() const;
  std::string ShapeName() const;

  // Adds the node; the values are in the subgraph already.
  xnn_status Define(xnn_subgraph_t subgraph, std::uint32_t input, std::uint32_t weights, std::uint32_t bias,
                    std::uint32_t output) const;

  // Calls visit(image, channel, taps) for every output element in memory order. taps(use) in its turn calls
  // use(input_index, weight_index) for every product that the element sums up; padding adds none.
  template <typename Visit>
  void ForEachOutput(const Visit& visit) const {
    const std::size_t group_outputs = outputs / groups;
    for (std::size_t n = 0; n < batch; ++n) {
      for (std::size_t y = 0; y < OutputHeight(); ++y) {
        for (std::size_t x = 0; x < OutputWidth(); ++x) {
          for (std::size_t channel = 0; channel < outputs; ++channel) {
            const std::size_t group = kind == Kind::kDepthwise ? channel : channel / group_outputs;
            visit(n, channel, [&](const auto& use) { ForEachTap(n, y, x, channel, group, use); });
          }
        }
      }
    }
  }

 private:
  template <typename Use>
  void ForEachTap(std::size_t n, std::size_t y, std::size_t x, std::size_t channel, std::size_t group,
                  const Use& use) const {
    for (std::size_t ky = 0; ky < kernel; ++ky) {
      for (std::size_t kx = 0; kx < kernel; ++kx) {
        // Unsigned wrap-around makes what lies above or left of the image too large as well.
        const std::size_t iy = y * stride + ky - padding, ix = x * stride + kx - padding;
        if (iy >= height || ix >= width) continue;
        for (std::size_t i = 0; i < InputsPerGroup(); ++i) {
          const std::size_t input = ((n * height + iy) * width + ix) * inputs + group * InputsPerGroup() + i;
          const std::size_t weight = kind == Kind::kDepthwise
                                         ? (ky * kernel + kx) * outputs + channel
                                         : ((channel * kernel + ky) * kernel + kx) * InputsPerGroup() + i;
          use(input, weight);
        }
      }
    }
  }
};

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
