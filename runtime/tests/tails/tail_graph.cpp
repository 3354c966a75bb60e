#include <flatbuffers/flatbuffers.h>

#include "tail_layers.h"

using slipway::xnn::XNNQuantParams;
using slipway::xnn::XNodeUnion;
using slipway::xnn::XValueUnion;
namespace xnn = slipway::xnn;

namespace tails {
namespace {

constexpr std::uint32_t kNothing = UINT32_MAX;

using Sizes = std::vector<std::uint32_t>;

std::uint32_t small(std::size_t number) {
  return static_cast<std::uint32_t>(number);
}

class LayerMaker {
 public:
  LayerMaker(const Layer& layer, const Data& data) : layer_(layer), data_(data) { add_constant({}); }

  std::vector<std::uint8_t> make() {
    const Types& types = *layer_.types;
    add_tensor(kInput, types.input, input_dims(layer_), nullptr, 1);
    if (types.dynamic) {
      add_quantized();
    }
    add_tensor(kFilter, types.filter, filter_dims(layer_), &data_.filter, layer_.given ? 1 : 0);
    if (layer_.with_bias) {
      add_tensor(kBias, types.bias, {small(layer_.results())}, &data_.bias, layer_.given ? 1 : 0);
    }
    add_tensor(kOutput, types.output, output_dims(layer_), nullptr, 2);
    std::vector<flatbuffers::Offset<xnn::XNode>> nodes;
    if (types.dynamic) {
      const auto convert = xnn::Create_XNNNode1x1(builder_, kInput, kQuantized, 0);
      nodes.push_back(xnn::CreateXNode(builder_, XNodeUnion::XNNConvert, convert.Union(), 7));
    }
    const auto range = xnn::CreateOutputMinMax(builder_, data_.low, data_.high);
    XNodeUnion kind = XNodeUnion::NONE;
    const flatbuffers::Offset<void> made = node(&kind);
    nodes.push_back(xnn::CreateXNode(builder_, kind, made, 8, range));
    const auto graph =
        xnn::CreateXNNGraph(builder_, builder_.CreateString("0"), builder_.CreateVector(nodes),
                            builder_.CreateVector(values_), externals_, builder_.CreateVector(Sizes()),
                            builder_.CreateVector(Sizes()), builder_.CreateVector(constants_));
    builder_.Finish(graph, "XN00");
    return {builder_.GetBufferPointer(), builder_.GetBufferPointer() + builder_.GetSize()};
  }

 private:
  enum Id : std::uint32_t { kInput, kFilter, kBias, kOutput, kQuantized };

  std::uint32_t add_constant(const std::vector<std::uint8_t>& bytes) {
    builder_.ForceVectorAlignment(bytes.size(), 1, 16);
    const auto storage = builder_.CreateVector(bytes);
    constants_.push_back(xnn::CreateBuffer(builder_, storage));
    return small(constants_.size() - 1);
  }

  // `flags`: 1 for what the call gives, 2 for what it takes, 0 for a constant.
  void add_tensor(std::uint32_t id, Type type, const Sizes& dims, const std::vector<std::uint8_t>* bytes,
                  std::uint32_t flags) {
    const std::uint32_t index = flags == 0 ? add_constant(*bytes) : 0;
    const auto tensor =
        xnn::CreateXNNTensorValue(builder_, type, small(dims.size()), builder_.CreateVector(dims), index,
                                  flags == 0 ? kNothing : externals_++, flags, id);
    XNNQuantParams kind = XNNQuantParams::NONE;
    flatbuffers::Offset<void> quant;
    switch (type) {
      case Type::xnn_datatype_qint8:
      case Type::xnn_datatype_quint8:
      case Type::xnn_datatype_qint32: {
        float scale = id == kInput ? data_.input_scale : data_.output_scale;
        std::int32_t zero = id == kInput ? data_.input_zero : data_.output_zero;
        if (id == kFilter || id == kBias) {
          scale = data_.scales[0] * (id == kBias ? data_.input_scale : 1.0F);
          zero = id == kBias ? 0 : data_.filter_zero;
        }
        kind = XNNQuantParams::PerTensorQuant;
        quant = xnn::CreatePerTensorQuant(builder_, scale, zero).Union();
        break;
      }
      case Type::xnn_datatype_qcint8:
      case Type::xnn_datatype_qcint4:
      case Type::xnn_datatype_qcint32: {
        std::vector<float> scales = data_.scales;
        for (float& scale : scales) {
          scale *= id == kBias ? data_.input_scale : 1.0F;
        }
        kind = XNNQuantParams::PerChannelQuant;
        quant = xnn::CreatePerChannelQuant(builder_, builder_.CreateVector(scales), channel_dim(id, dims))
                    .Union();
        break;
      }
      case Type::xnn_datatype_qbint4: {
        const std::uint32_t scales = add_constant(data_.block_scales);
        kind = XNNQuantParams::PerChannelGroupQuant;
        quant = xnn::CreatePerChannelGroupQuant(builder_, 0, 0,
                                                static_cast<std::int32_t>(layer_.types->block), scales)
                    .Union();
        break;
      }
      default:
        values_.push_back(xnn::CreateXValue(builder_, XValueUnion::XNNTensorValue, tensor.Union()));
        return;
    }
    const auto quantized = xnn::CreateXNNQuantizedTensorValue(builder_, tensor, kind, quant);
    values_.push_back(xnn::CreateXValue(builder_, XValueUnion::XNNQuantizedTensorValue, quantized.Union()));
  }

  std::int32_t channel_dim(std::uint32_t id, const Sizes& dims) const {
    if (id == kBias) {
      return 0;
    }
    const bool batch = layer_.kind == Kind::kBatch;
    const bool last = layer_.kind == Kind::kDepthwise || layer_.weights_across != batch;
    const auto rank = static_cast<std::int32_t>(dims.size());
    return last ? rank - 1 : (batch ? rank - 2 : 0);
  }

  void add_quantized() {
    const Sizes dims = input_dims(layer_);
    const bool rows = layer_.kind == Kind::kConnected || layer_.kind == Kind::kBatch;
    const auto tensor = xnn::CreateXNNTensorValue(builder_, Type::xnn_datatype_qdint8, small(dims.size()),
                                                  builder_.CreateVector(dims), 0, kNothing, 0, kQuantized);
    const auto quant = xnn::CreatePerTokenDynamicQuant(builder_, rows ? 1 : 3);
    const auto quantized = xnn::CreateXNNQuantizedTensorValue(
        builder_, tensor, XNNQuantParams::PerTokenDynamicQuant, quant.Union());
    values_.push_back(xnn::CreateXValue(builder_, XValueUnion::XNNQuantizedTensorValue, quantized.Union()));
  }

  flatbuffers::Offset<void> node(XNodeUnion* kind) {
    const std::uint32_t input = layer_.types->dynamic ? kQuantized : kInput;
    const std::uint32_t bias = layer_.with_bias ? kBias : kNothing;
    // XNN_FLAG_TRANSPOSE_WEIGHTS and XNN_FLAG_TRANSPOSE_B.
    const std::uint32_t across = layer_.weights_across ? 1 : 0;
    if (layer_.kind == Kind::kConnected) {
      *kind = XNodeUnion::XNNFullyConnected;
      return xnn::CreateXNNFullyConnected(builder_, input, kFilter, bias, kOutput, across).Union();
    }
    if (layer_.kind == Kind::kBatch) {
      *kind = XNodeUnion::XNNBatchMatrixMultiply;
      return xnn::Create_XNNNode2x1(builder_, input, kFilter, kOutput, across).Union();
    }
    *kind = layer_.kind == Kind::kConvolution
                ? XNodeUnion::XNNConv2d
                : (layer_.kind == Kind::kDepthwise ? XNodeUnion::XNNDepthwiseConv2d
                                                   : XNodeUnion::XNNConvTranspose2d);
    const std::uint32_t side = layer_.padding;
    return xnn::Create_XNNNodeConv(builder_, side, side, side, side, layer_.window_height,
                                   layer_.window_width, layer_.down, layer_.across, 1, 1, small(layer_.depth),
                                   small(layer_.columns), small(layer_.groups), 0, 0, input, kFilter, bias,
                                   kOutput, 0)
        .Union();
  }

  const Layer& layer_;
  const Data& data_;
  flatbuffers::FlatBufferBuilder builder_;
  std::vector<flatbuffers::Offset<xnn::XValue>> values_;
  std::vector<flatbuffers::Offset<xnn::Buffer>> constants_;
  std::uint32_t externals_ = 0;
};

Sizes dims_of(const Layer& layer, std::size_t height, std::size_t width, std::size_t channels) {
  switch (layer.kind) {
    case Kind::kConnected:
      return {small(layer.width), small(channels)};
    case Kind::kBatch:
      return {small(layer.batch), small(layer.width), small(channels)};
    default:
      return {small(layer.batch), small(height), small(width), small(channels)};
  }
}

}  // namespace

std::vector<std::uint32_t> input_dims(const Layer& layer) {
  return dims_of(layer, layer.height, layer.width, layer.groups * layer.depth);
}

std::vector<std::uint32_t> filter_dims(const Layer& layer) {
  const std::uint32_t columns = small(layer.columns);
  const std::uint32_t depth = small(layer.depth);
  switch (layer.kind) {
    case Kind::kConnected:
      return layer.weights_across ? Sizes{depth, columns} : Sizes{columns, depth};
    case Kind::kBatch: {
      const std::uint32_t batch = layer.types->dynamic ? 1 : small(layer.batch);
      return layer.weights_across ? Sizes{batch, columns, depth} : Sizes{batch, depth, columns};
    }
    case Kind::kDepthwise:
      return {1, layer.window_height, layer.window_width, small(layer.results())};
    default:
      return {small(layer.results()), layer.window_height, layer.window_width, depth};
  }
}

std::vector<std::uint32_t> output_dims(const Layer& layer) {
  return dims_of(layer, layer.rows_out(), layer.columns_out(), layer.results());
}

std::size_t element_size(Type type) {
  switch (type) {
    case Type::xnn_datatype_fp32:
    case Type::xnn_datatype_qint32:
    case Type::xnn_datatype_qcint32:
      return 4;
    case Type::xnn_datatype_fp16:
      return 2;
    default:
      return 1;
  }
}

std::vector<std::uint8_t> make_payload(const Layer& layer, const Data& data) {
  return LayerMaker(layer, data).make();
}

}  // namespace tails
