#include "lean/xnnpack/matrix_layer.h"

#include <xnnpack.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace slipway::lean {
namespace {

using xnn::XNNDatatype;

constexpr std::uint32_t kTransposed = XNN_FLAG_TRANSPOSE_WEIGHTS;

// The values of a node, whatever its kind. No bias: a batched product, or none was exported.
struct MatrixOperands {
  const Lifetime* input = nullptr;
  const Lifetime* filter = nullptr;
  const Lifetime* bias = nullptr;
  const Lifetime* output = nullptr;
  // The input as its maker takes it, where that quantizes it: exporters leave the quantized value of a
  // convolution with the shape that PyTorch gives it, channels first.
  const Lifetime* rows = nullptr;
};

void find_rows(const XnnPayload& payload, const Lifetimes& lifetimes, MatrixOperands* operands) {
  operands->rows = operands->input;
  if (operands->input->tensor->datatype() == XNNDatatype::xnn_datatype_qdint8 &&
      operands->input->producer != kNoNode) {
    const auto producer = static_cast<flatbuffers::uoffset_t>(operands->input->producer);
    const auto* convert = payload.graph().xnodes()->Get(producer)->xnode_union_as_XNNConvert();
    const auto found = lifetimes.find(convert == nullptr ? XNN_INVALID_VALUE_ID : convert->input_id());
    operands->rows = found == lifetimes.end() ? operands->input : &found->second;
  }
}

const Lifetime* lifetime_of(const Lifetimes& lifetimes, std::uint32_t id) {
  const auto found = lifetimes.find(id);
  return found == lifetimes.end() ? nullptr : &found->second;
}

std::vector<std::size_t> lifetime_dims(const Lifetime& lifetime) {
  const auto* dims = lifetime.tensor->dims();
  return dims == nullptr ? std::vector<std::size_t>() : std::vector<std::size_t>(dims->begin(), dims->end());
}

XNNDatatype type_of(const Lifetime* lifetime) {
  return lifetime == nullptr ? XNNDatatype::xnn_datatype_invalid : lifetime->tensor->datatype();
}

const xnn::PerTensorQuant* one_scale(const Lifetime& lifetime) {
  const auto* quantized = lifetime.value->xvalue_union_as_XNNQuantizedTensorValue();
  return quantized == nullptr ? nullptr : quantized->quant_params_as_PerTensorQuant();
}

bool every_pixel(const Window& window) {
  return window.kernel == 1 && window.stride == 1 && window.before == 0 && window.after == 0;
}

// False for a convolution that these layers are not.
bool read_windows(const xnn::_XNNNodeConv& node, MatrixLayer* layer) {
  layer->down = window_down(node);
  layer->across = window_across(node);
  layer->windowed = !every_pixel(layer->down) || !every_pixel(layer->across);
  return node.flags() == 0 && node.groups() == 1;
}

// The node's values and what they say of the layer's form; false for other nodes.
bool read_node(const Lifetimes& lifetimes, const xnn::XNode& node, MatrixOperands* operands,
               MatrixLayer* layer) {
  const auto take = [&](std::uint32_t input, std::uint32_t filter, std::uint32_t bias, std::uint32_t output) {
    *operands = {lifetime_of(lifetimes, input), lifetime_of(lifetimes, filter), lifetime_of(lifetimes, bias),
                 lifetime_of(lifetimes, output), nullptr};
    return operands->input != nullptr && operands->filter != nullptr && operands->output != nullptr &&
           (bias == XNN_INVALID_VALUE_ID || operands->bias != nullptr);
  };
  if (const auto* linear = node.xnode_union_as_XNNFullyConnected()) {
    layer->operation = Operation::kFullyConnected;
    return (linear->flags() | kTransposed) == kTransposed &&
           take(linear->input1_id(), linear->filter_id(), linear->bias_id(), linear->output_id());
  }
  if (const auto* convolution = node.xnode_union_as_XNNConv2d()) {
    layer->operation = Operation::kConvolution;
    return read_windows(*convolution, layer) && take(convolution->input1_id(), convolution->filter_id(),
                                                     convolution->bias_id(), convolution->output_id());
  }
  if (const auto* product = node.xnode_union_as_XNNBatchMatrixMultiply()) {
    layer->operation = Operation::kBatchMatrixMultiply;
    return product->flags() == 0 &&
           take(product->input1_id(), product->input2_id(), XNN_INVALID_VALUE_ID, product->output_id());
  }
  return false;
}

// Where weights lie and how many there are. Those of a batched product are depth x outputs a batch.
bool read_form(const MatrixOperands& operands, bool transposed, MatrixLayer* layer) {
  const std::vector<std::size_t> input = lifetime_dims(*operands.rows);
  const std::vector<std::size_t> filter = lifetime_dims(*operands.filter);
  const std::size_t rank = filter.size();
  if (input.empty() || rank < 2 || operands.output->tensor->num_dims() != input.size()) {
    return false;
  }
  const bool batched = layer->operation == Operation::kBatchMatrixMultiply;
  if (batched) {
    if (input.size() != rank) {
      return false;
    }
    bool same = true;
    for (std::size_t i = 0; i + 2 < rank; ++i) {
      layer->batches *= filter[i];
      same = same && filter[i] == input[i];
    }
    // One batch of weights for all is as if there were one.
    if (!same && layer->batches != 1) {
      return false;
    }
  } else if (rank != (layer->operation == Operation::kConvolution ? 4U : 2U)) {
    return false;
  }
  const bool by_depth = batched || transposed;
  layer->depth = by_depth ? filter[rank - 2] : filter[rank - 1];
  layer->channels = layer->depth;
  if (layer->windowed) {
    layer->depth *= filter[1] * filter[2];
  }
  layer->outputs = by_depth ? filter[rank - 1] : filter[0];
  layer->along_outputs = by_depth ? 1 : layer->depth;
  layer->along_depth = by_depth ? layer->outputs : 1;
  layer->rows = 1;
  for (std::size_t i = 0; i + 1 < input.size(); ++i) {
    layer->rows *= input[i];
  }
  if (layer->windowed) {
    std::size_t height = 0;
    std::size_t width = 0;
    if (input.size() != 4 || !windows_along(input[1], layer->down, false, &height) ||
        !windows_along(input[2], layer->across, false, &width)) {
      return false;
    }
    layer->rows = input[0] * height * width;
  }
  return layer->depth != 0 && layer->outputs != 0 && layer->batches != 0 && input.back() == layer->channels;
}

bool read_scales(const XnnPayload& payload, const Lifetime& filter, std::size_t channel, MatrixLayer* layer) {
  const auto* quantized = filter.value->xvalue_union_as_XNNQuantizedTensorValue();
  if (const auto* whole = one_scale(filter)) {
    layer->scales.assign(layer->outputs, whole->scale());
    return whole->zero_point() == 0;
  }
  const auto* channels = quantized == nullptr ? nullptr : quantized->quant_params_as_PerChannelQuant();
  if (channels == nullptr || channels->channel_dim() < 0 ||
      static_cast<std::size_t>(channels->channel_dim()) != channel) {
    return false;
  }
  if (channels->scale_buffer_idx() != 0) {
    const Bytes stored = payload.constant(channels->scale_buffer_idx());
    layer->scales.resize(stored.size / sizeof(float));
    std::memcpy(layer->scales.data(), stored.data, layer->scales.size() * sizeof(float));
  } else if (channels->scale() != nullptr) {
    layer->scales.assign(channels->scale()->begin(), channels->scale()->end());
  }
  return layer->scales.size() == layer->outputs;
}

// Whether each row is quantized by itself (`pixels`: as the engine does it, whatever is stored), and the
// kernels take its length.
bool is_dynamic(const MatrixOperands& operands, const MatrixLayer& layer, bool pixels) {
  const auto* quantized = operands.input->value->xvalue_union_as_XNNQuantizedTensorValue();
  const auto* dynamic = quantized == nullptr ? nullptr : quantized->quant_params_as_PerTokenDynamicQuant();
  const std::vector<std::size_t> dims = lifetime_dims(*operands.rows);
  if (dynamic == nullptr || dynamic->num_nonbatch_dims() < 1 ||
      static_cast<std::size_t>(dynamic->num_nonbatch_dims()) > dims.size() || layer.depth % 8 != 0 ||
      layer.along_depth != 1 || layer.batches != 1 || operands.input->producer == kNoNode) {
    return false;
  }
  std::size_t rows = 1;
  for (std::size_t i = dims.size() - static_cast<std::size_t>(dynamic->num_nonbatch_dims());
       i + 1 < dims.size(); ++i) {
    rows *= dims[i];
  }
  const XNNDatatype bias = type_of(operands.bias);
  return (pixels || rows == 1) && type_of(operands.filter) == XNNDatatype::xnn_datatype_qcint8 &&
         type_of(operands.output) == XNNDatatype::xnn_datatype_fp32 &&
         (operands.bias == nullptr || bias == XNNDatatype::xnn_datatype_fp32);
}

bool is_single_precision(const MatrixOperands& operands) {
  return type_of(operands.output) == XNNDatatype::xnn_datatype_fp32 &&
         type_of(operands.filter) == XNNDatatype::xnn_datatype_fp32 &&
         (operands.bias == nullptr || type_of(operands.bias) == XNNDatatype::xnn_datatype_fp32);
}

bool is_half(const MatrixOperands& operands, MatrixLayer* layer) {
  const XNNDatatype filter = type_of(operands.filter);
  const XNNDatatype bias = type_of(operands.bias);
  layer->wide_weights = filter == XNNDatatype::xnn_datatype_fp32;
  layer->wide_bias = bias == XNNDatatype::xnn_datatype_fp32;
  return type_of(operands.output) == XNNDatatype::xnn_datatype_fp16 &&
         (layer->wide_weights || filter == XNNDatatype::xnn_datatype_fp16) &&
         (operands.bias == nullptr || layer->wide_bias || bias == XNNDatatype::xnn_datatype_fp16);
}

bool is_static(const MatrixOperands& operands, MatrixLayer* layer) {
  const XNNDatatype filter = type_of(operands.filter);
  const XNNDatatype bias = type_of(operands.bias);
  const auto* input = one_scale(*operands.input);
  const auto* output = one_scale(*operands.output);
  if (input == nullptr || output == nullptr || type_of(operands.output) != XNNDatatype::xnn_datatype_qint8 ||
      (filter != XNNDatatype::xnn_datatype_qcint8 && filter != XNNDatatype::xnn_datatype_qint8) ||
      !(input->scale() > 0) || !(output->scale() > 0)) {
    return false;
  }
  layer->input_scale = input->scale();
  layer->input_zero = input->zero_point();
  layer->output_scale = output->scale();
  layer->output_zero = output->zero_point();
  return operands.bias == nullptr || bias == XNNDatatype::xnn_datatype_qint32 ||
         bias == XNNDatatype::xnn_datatype_qcint32;
}

}  // namespace

bool Lifetime::given() const {
  return (tensor->flags() & XNN_VALUE_FLAG_EXTERNAL_INPUT) != 0;
}

// Nodes come in an order in which they can run: the first that names a value that is neither given nor
// constant makes it.
Lifetimes lifetimes_of(const XnnPayload& payload, const std::vector<std::set<std::uint32_t>>& uses,
                       const GivenConstants& given) {
  Lifetimes lifetimes;
  for (const xnn::XValue* value : *payload.graph().xvalues()) {
    const xnn::XNNTensorValue* tensor = tensor_of(*value);
    Lifetime& lifetime = lifetimes[tensor->id_out()];
    lifetime.value = value;
    lifetime.tensor = tensor;
    const auto constant = given.find(tensor->external_id());
    if (lifetime.given() && constant != given.end()) {
      lifetime.given_data = constant->second;
    }
  }
  for (std::size_t node = 0; node < uses.size(); ++node) {
    for (const std::uint32_t id : uses[node]) {
      Lifetime& lifetime = lifetimes.at(id);
      if (lifetime.producer == kNoNode && !lifetime.given() && !lifetime.constant()) {
        lifetime.producer = node;
      } else {
        lifetime.consumers.insert(node);
      }
    }
  }
  return lifetimes;
}

std::size_t size_of_element(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kHalf:
      return sizeof(std::uint16_t);
    case Arithmetic::kSingle:
      return sizeof(float);
    default:
      return 1;
  }
}

std::optional<MatrixLayer> matrix_layer(const XnnPayload& payload, const Lifetimes& lifetimes,
                                        const xnn::XNode& node) {
  MatrixLayer layer;
  MatrixOperands operands;
  if (!read_node(lifetimes, node, &operands, &layer)) {
    return {};
  }
  const auto* linear = node.xnode_union_as_XNNFullyConnected();
  const bool transposed = linear != nullptr && (linear->flags() & kTransposed) != 0;
  find_rows(payload, lifetimes, &operands);
  layer.given = !operands.filter->constant() && operands.filter->given_data.data == nullptr;
  if ((layer.given && layer.operation != Operation::kBatchMatrixMultiply) || operands.input->constant() ||
      (operands.bias != nullptr && !operands.bias->constant()) || !read_form(operands, transposed, &layer)) {
    return {};
  }
  bool found = false;
  switch (type_of(operands.input)) {
    case XNNDatatype::xnn_datatype_qdint8:
      layer.arithmetic = Arithmetic::kDynamic8;
      found = is_dynamic(operands, layer, payload.pixel_layers().is_rows(operands.input->tensor->id_out())) &&
              read_scales(payload, *operands.filter, 0, &layer);
      break;
    case XNNDatatype::xnn_datatype_fp16:
      layer.arithmetic = Arithmetic::kHalf;
      found = is_half(operands, &layer);
      break;
    case XNNDatatype::xnn_datatype_fp32:
      layer.arithmetic = Arithmetic::kSingle;
      found = is_single_precision(operands);
      break;
    case XNNDatatype::xnn_datatype_qint8:
      layer.arithmetic = Arithmetic::kStatic8;
      // Which of the weights' dimensions has the scales.
      found = layer.batches == 1 && is_static(operands, &layer) &&
              read_scales(payload, *operands.filter,
                          layer.along_depth == 1 ? 0 : lifetime_dims(*operands.filter).size() - 1, &layer);
      break;
    default:
      break;
  }
  if (!found) {
    return {};
  }
  if (layer.given) {
    layer.given_id = operands.filter->tensor->id_out();
    // As many batches as the rows have: XNNPACK repeats one, these layers do not.
    const std::vector<std::size_t> rows = lifetime_dims(*operands.rows);
    const std::vector<std::size_t> matrix = lifetime_dims(*operands.filter);
    if (layer.wide_weights || !std::equal(rows.begin(), rows.end() - 2, matrix.begin(), matrix.end() - 2)) {
      return {};
    }
  } else if (operands.filter->constant()) {
    layer.weights = payload.constant(operands.filter->tensor->constant_buffer_idx()).data;
  } else {
    // The graph's own constants were measured when it was built.
    const Bytes given = operands.filter->given_data;
    const std::size_t element = size_of_element(layer.arithmetic);
    if (layer.wide_weights || reinterpret_cast<std::uintptr_t>(given.data) % element != 0 ||
        given.size / element / layer.depth / layer.outputs < layer.batches) {
      return {};
    }
    layer.weights = given.data;
  }
  if (operands.bias != nullptr) {
    layer.bias = payload.constant(operands.bias->tensor->constant_buffer_idx()).data;
    if (layer.bias == nullptr || lifetime_dims(*operands.bias) != std::vector<std::size_t>{layer.outputs}) {
      return {};
    }
  }
  const xnn::OutputMinMax* range = node.output_min_max();
  layer.min = range == nullptr ? -std::numeric_limits<float>::infinity() : range->output_min();
  layer.max = range == nullptr ? std::numeric_limits<float>::infinity() : range->output_max();
  return layer;
}

std::uint32_t input_of(const xnn::XNode& node) {
  if (const auto* linear = node.xnode_union_as_XNNFullyConnected()) {
    return linear->input1_id();
  }
  if (const auto* convolution = node.xnode_union_as_XNNConv2d()) {
    return convolution->input1_id();
  }
  const auto* product = node.xnode_union_as_XNNBatchMatrixMultiply();
  return product == nullptr ? XNN_INVALID_VALUE_ID : product->input1_id();
}

}  // namespace slipway::lean
