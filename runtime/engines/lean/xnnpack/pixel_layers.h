// 1x1 convolutions whose input is quantized while the graph runs.
//
// The exporter quantizes each image by itself. Upstream's runtime (ExecuTorch 1.5) computes such a layer as a
// fully connected one: its rows are the pixels, and each is quantized by itself. That is nearer to the float
// result, and the kernels for rows serve it. So this engine does the same.
#pragma once

#include <cstdint>
#include <set>

#include "xnnpack_runtime_generated.h"

namespace slipway::lean {

class PixelLayers {
 public:
  PixelLayers() = default;
  // Of a graph that may be damaged: what it leaves out is left out here.
  explicit PixelLayers(const xnn::XNNGraph& graph);

  // Whether the convolution is computed as rows.
  bool has(const xnn::_XNNNodeConv& node) const { return rows_.count(node.input1_id()) != 0; }
  // Whether the value, by the exporter's id, is quantized by pixels. Only such convolutions read it.
  bool is_rows(std::uint32_t id) const { return rows_.count(id) != 0; }

 private:
  std::set<std::uint32_t> rows_;
};

}  // namespace slipway::lean
