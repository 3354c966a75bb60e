// For the files that define nodes: one function a kind, from the exporter's table to XNNPACK's call. Each
// answers invalid_parameter when a value that the node names is not there, or its sizes do not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lean/xnnpack/graph_builder.h"

namespace slipway::lean::nodes {

struct Range {
  float min = -std::numeric_limits<float>::infinity();
  float max = std::numeric_limits<float>::infinity();
};

Range range_of(const xnn::XNode& node);

// A node in the making: turns the exporter's ids into XNNPACK's and remembers when one was missing.
class Ids {
 public:
  explicit Ids(const GraphBuilder& graph) : graph_(graph) {}

  std::uint32_t operator()(std::uint32_t exported) { return take(graph_.use(exported)); }
  // After the node's inputs.
  std::uint32_t output(std::uint32_t exported) { return take(graph_.claim(exported)); }
  std::uint32_t optional(std::uint32_t exported) {
    return exported == XNN_INVALID_VALUE_ID ? XNN_INVALID_VALUE_ID : (*this)(exported);
  }
  bool good() const { return good_; }

 private:
  std::uint32_t take(const GraphValue* value) {
    good_ = good_ && value != nullptr;
    return value == nullptr ? XNN_INVALID_VALUE_ID : value->id;
  }

  const GraphBuilder& graph_;
  bool good_ = true;
};

std::vector<std::size_t> sizes_of(const flatbuffers::Vector<std::uint32_t>* items);

// Whether a layer's weights and bias have the sizes that its channels ask for: XNNPACK trusts it.
bool fits(const GraphBuilder& graph, std::uint32_t filter, std::uint32_t bias, std::size_t filter_count,
          std::size_t outputs);

// nodes_pointwise.cpp
xnn_status unary(const GraphBuilder& graph, const xnn::_XNNNode1x1& node, xnn_unary_operator type,
                 const xnn_unary_params* params = nullptr);
xnn_status binary(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNode2x1& node,
                  xnn_binary_operator type);
xnn_status convert(const GraphBuilder& graph, const xnn::_XNNNode1x1& node);
xnn_status clamp(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNode1x1& node);
xnn_status elu(const GraphBuilder& graph, const xnn::XNNELU& node);
xnn_status leaky_relu(const GraphBuilder& graph, const xnn::XNNLeakyReLU& node);
xnn_status softmax(const GraphBuilder& graph, const xnn::_XNNNode1x1& node);
xnn_status copy(const GraphBuilder& graph, const xnn::_XNNNode1x1& node);

// nodes_convolutions.cpp
xnn_status convolution(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNodeConv& node);
xnn_status depthwise(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNodeConv& node);
xnn_status transposed(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNNodeConv& node);

// nodes_products.cpp
xnn_status fully_connected(const GraphBuilder& graph, const xnn::XNode& outer,
                           const xnn::XNNFullyConnected& node);
xnn_status attention(const GraphBuilder& graph, const xnn::XNNScaledDotProductAttention& node);
xnn_status batch_matrix_multiply(const GraphBuilder& graph, const xnn::_XNNNode2x1& node);

// nodes_pooling.cpp
xnn_status global_average(const GraphBuilder& graph, const xnn::_XNNNode1x1& node);
xnn_status average_pooling(const GraphBuilder& graph, const xnn::XNode& outer,
                           const xnn::_XNNPooling2D& node);
xnn_status max_pooling(const GraphBuilder& graph, const xnn::XNode& outer, const xnn::_XNNPooling2D& node);
xnn_status argmax_pooling(const GraphBuilder& graph, const xnn::XNNArgMaxPooling2d& node);

// nodes_shape.cpp
xnn_status transpose(const GraphBuilder& graph, const xnn::XNNStaticTranspose& node);
xnn_status slice(const GraphBuilder& graph, const xnn::XNNStaticSlice& node);
xnn_status reshape(const GraphBuilder& graph, const xnn::XNNStaticReshape& node);
xnn_status resize_bilinear(const GraphBuilder& graph, const xnn::XNNStaticResizeBilinear2D& node);
xnn_status pad(const GraphBuilder& graph, const xnn::XNNStaticConstantPad& node);
xnn_status concatenate(const GraphBuilder& graph, const xnn::_XNNCat& node, int count);

}  // namespace slipway::lean::nodes
