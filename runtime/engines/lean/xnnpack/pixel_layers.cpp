#include "lean/xnnpack/pixel_layers.h"

#include <xnnpack.h>

#include "lean/xnnpack/payload.h"

namespace slipway::lean {
namespace {

constexpr std::uint32_t kImageRank = 4;

bool is_pixel_layer(const xnn::_XNNNodeConv& node) {
  return node.kernel_height() == 1 && node.kernel_width() == 1 && node.subsampling_height() == 1 &&
         node.subsampling_width() == 1 && node.padding_top() == 0 && node.padding_right() == 0 &&
         node.padding_bottom() == 0 && node.padding_left() == 0 && node.groups() == 1;
}

// Images of which each is quantized by itself.
std::set<std::uint32_t> quantized_images(const xnn::XNNGraph& graph) {
  std::set<std::uint32_t> images;
  for (const xnn::XValue* value : *graph.xvalues()) {
    const auto* quantized = value->xvalue_union_as_XNNQuantizedTensorValue();
    const auto* dynamic = quantized == nullptr ? nullptr : quantized->quant_params_as_PerTokenDynamicQuant();
    const xnn::XNNTensorValue* tensor = tensor_of(*value);
    if (dynamic != nullptr && tensor != nullptr && tensor->num_dims() == kImageRank &&
        dynamic->num_nonbatch_dims() == static_cast<std::int32_t>(kImageRank) - 1) {
      images.insert(tensor->id_out());
    }
  }
  return images;
}

}  // namespace

PixelLayers::PixelLayers(const xnn::XNNGraph& graph) {
  if (graph.xvalues() == nullptr || graph.xnodes() == nullptr) {
    return;
  }
  const std::set<std::uint32_t> images = quantized_images(graph);
  std::set<std::uint32_t> others;  // what other layers read
  for (const xnn::XNode* node : *graph.xnodes()) {
    const auto* convolution = node->xnode_union_as_XNNConv2d();
    if (convolution != nullptr && is_pixel_layer(*convolution)) {
      if (images.count(convolution->input1_id()) != 0) {
        rows_.insert(convolution->input1_id());
      }
    } else if (convolution != nullptr) {
      others.insert(convolution->input1_id());
    } else if (const auto* transposed = node->xnode_union_as_XNNConvTranspose2d()) {
      others.insert(transposed->input1_id());
    } else if (const auto* linear = node->xnode_union_as_XNNFullyConnected()) {
      others.insert(linear->input1_id());
    } else if (const auto* product = node->xnode_union_as_XNNBatchMatrixMultiply()) {
      others.insert(product->input1_id());
    }
  }
  for (const std::uint32_t id : others) {
    rows_.erase(id);
  }
}

}  // namespace slipway::lean
