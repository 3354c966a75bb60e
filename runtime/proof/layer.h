#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace proof {

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

}  // namespace proof
