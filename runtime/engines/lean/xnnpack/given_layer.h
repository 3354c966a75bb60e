// Fully-connected layers whose weights or bias come when the program runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lean/xnnpack/graph_builder.h"

namespace slipway::lean {

// The nodes of one layer. XNNPACK has such layers in float32 only: what is of half precision is converted
// before and after. It packs such weights into memory that nobody cleared, and its kernels for few outputs
// read them in groups of inputs: what the last group lacks would be anything. So the inputs are made a
// multiple of every group, with zeros.
class GivenLayer {
 public:
  struct Range {
    float min;
    float max;
  };

  // `inputs`: features of a row.
  GivenLayer(const GraphBuilder& graph, std::size_t inputs);

  // The value in float32: XNNPACK's id becomes that of another value where it is not. Ids that are invalid
  // stay.
  void take(std::uint32_t exported, std::uint32_t* id);
  // The same, and as many zeros at the end of a dimension, the one of the layer's inputs, as they lack.
  void take_padded(std::uint32_t exported, std::uint32_t* id, std::size_t along);
  // The layer itself, with values that were taken.
  xnn_status define(const Range& range, std::uint32_t input, std::uint32_t filter, std::uint32_t bias,
                    std::uint32_t output, std::uint32_t exported_output, std::uint32_t flags);

 private:
  bool widen(std::uint32_t exported, std::uint32_t* id);
  xnn_status convert(std::uint32_t from, std::uint32_t to);

  const GraphBuilder& graph_;
  std::size_t lacking_;
  xnn_status status_ = xnn_status_success;
};

}  // namespace slipway::lean
