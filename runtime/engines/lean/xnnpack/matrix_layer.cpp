#include "lean/xnnpack/matrix_layer.h"

#include <limits>

namespace slipway::lean {
namespace {

// What kind of layer the node is; false for others. `by_depth`: its weights are stored as depth x outputs.
bool read_kind(const xnn::XNode& node, MatrixLayer* layer, bool* by_depth) {
  if (const auto* linear = node.xnode_union_as_XNNFullyConnected()) {
    layer->operation = Operation::kFullyConnected;
    *by_depth = (linear->flags() & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
    return true;
  }
  if (const auto* convolution = node.xnode_union_as_XNNConv2d()) {
    layer->operation = Operation::kConvolution;
    layer->down = window_down(*convolution);
    layer->across = window_across(*convolution);
    layer->windowed = !every_pixel(layer->down) || !every_pixel(layer->across);
    return convolution->flags() == 0 && convolution->groups() == 1;
  }
  const auto* product = node.xnode_union_as_XNNBatchMatrixMultiply();
  layer->operation = Operation::kBatchMatrixMultiply;
  *by_depth = true;
  return product != nullptr && product->flags() == 0;
}

// Where weights lie and how many there are; false for a product whose batches are not those of its rows.
bool read_form(const Dims& input, const Dims& filter, bool by_depth, MatrixLayer* layer) {
  const std::size_t rank = filter.rank;
  if (layer->operation == Operation::kBatchMatrixMultiply) {
    bool same = input.rank == rank;
    for (std::size_t i = 0; input.rank == rank && i + 2 < rank; ++i) {
      layer->batches *= filter[i];
      same = same && filter[i] == input[i];
    }
    // One batch of constant weights for all is as if there were one.
    const bool one = input.rank == rank && layer->batches == 1 && !layer->given;
    if ((!same && !one) || layer->batches == 0) {
      return false;
    }
  }
  layer->depth = by_depth ? filter[rank - 2] : filter[rank - 1];
  layer->channels = layer->depth;
  if (layer->windowed) {
    layer->depth *= filter[1] * filter[2];
  }
  layer->outputs = by_depth ? filter[rank - 1] : filter[0];
  layer->along_outputs = by_depth ? 1 : layer->depth;
  layer->along_depth = by_depth ? layer->outputs : 1;
  layer->rows = 1;
  for (std::size_t i = 0; i + 1 < input.rank; ++i) {
    layer->rows *= input[i];
  }
  if (layer->windowed) {
    std::size_t height = 0;
    std::size_t width = 0;
    windows_along(input[1], layer->down, false, &height);
    windows_along(input[2], layer->across, false, &width);
    layer->rows = input[0] * height * width;
  }
  return true;
}

// What it computes with; false where that is none of the four.
bool read_types(const GraphFact& input, const GraphFact& filter, const GraphFact* bias,
                const GraphFact& output, MatrixLayer* layer) {
  const float* scales = filter.scales;
  layer->scales.assign(layer->outputs, filter.scale);
  if (scales != nullptr) {
    layer->scales.assign(scales, scales + layer->outputs);
  }
  layer->wide_weights = filter.type == xnn_datatype_fp32;
  layer->wide_bias = bias != nullptr && bias->type == xnn_datatype_fp32;
  layer->input_scale = input.scale;
  layer->input_zero = input.zero_point;
  layer->output_scale = output.scale;
  layer->output_zero = output.zero_point;
  switch (input.type) {
    case xnn_datatype_qdint8:
      layer->arithmetic = Arithmetic::kDynamic8;
      // The kernels quantize each row by itself, and take no other lengths.
      return filter.type == xnn_datatype_qcint8 && output.type == xnn_datatype_fp32 &&
             layer->depth % 8 == 0 && layer->along_depth == 1 && layer->batches == 1 &&
             (layer->operation != Operation::kConvolution || input.by_pixels);
    case xnn_datatype_fp16:
      layer->arithmetic = Arithmetic::kHalf;
      return true;
    case xnn_datatype_fp32:
      layer->arithmetic = Arithmetic::kSingle;
      return true;
    case xnn_datatype_qint8:
      layer->arithmetic = Arithmetic::kStatic8;
      return filter.zero_point == 0;
    default:
      return false;
  }
}

}  // namespace

std::optional<MatrixLayer> matrix_layer(const GraphCheck& check, const GraphNode& node) {
  MatrixLayer layer;
  bool by_depth = false;
  if (!read_kind(*node.node, &layer, &by_depth)) {
    return {};
  }
  const Operands& values = node.operands;
  const GraphFact& input = check.facts()[values.inputs[0]];
  const GraphFact& filter = check.facts()[values.inputs[1]];
  const GraphFact* bias =
      values.input_count > 2 && values.inputs[2] != kNoValue ? &check.facts()[values.inputs[2]] : nullptr;
  layer.given = !filter.constant;
  if ((layer.given && layer.operation != Operation::kBatchMatrixMultiply) || input.constant ||
      (bias != nullptr && !bias->constant) ||
      !read_form(check.shapes()[values.inputs[0]], filter.declared, by_depth, &layer) ||
      !read_types(input, filter, bias, check.facts()[values.outputs[0]], &layer)) {
    return {};
  }
  layer.given_value = values.inputs[1];
  layer.weights = filter.data.data;
  layer.bias = bias != nullptr ? bias->data.data : nullptr;
  const xnn::OutputMinMax* range = node.node->output_min_max();
  layer.min = range == nullptr ? -std::numeric_limits<float>::infinity() : range->output_min();
  layer.max = range == nullptr ? std::numeric_limits<float>::infinity() : range->output_max();
  return layer;
}

}  // namespace slipway::lean
