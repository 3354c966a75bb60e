#include "lean/xnnpack/packing.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/checksum.h"

namespace slipway::lean {
namespace {

using Values = std::unordered_map<std::uint32_t, const xnn::XValue*>;

void append(std::string* text, const void* data, std::size_t size) {
  text->append(static_cast<const char*>(data), size);
}

template <typename Number>
void append(std::string* text, Number number) {
  append(text, &number, sizeof(number));
}

// Numbers of which the packed weights' size does not depend: they would make texts long.
void put_content(std::string* text, const void* data, std::size_t size) {
  const Checksum sum = checksum_of(data, size);
  append(text, &sum, sizeof(sum));
}

void put_scales(std::string* text, const XnnPayload& payload, std::uint32_t buffer,
                const flatbuffers::Vector<float>* inline_scales) {
  if (buffer != 0) {
    const Bytes stored = payload.constant(buffer);
    put_content(text, stored.data, stored.size);
  } else if (inline_scales != nullptr) {
    put_content(text, inline_scales->data(), inline_scales->size() * sizeof(float));
  }
}

// A value's type and quantization; its shape only where that decides, since weights serve any batch.
void put_value(std::string* text, const XnnPayload& payload, const Values& values, std::uint32_t id,
               bool shape) {
  const auto found = values.find(id);
  if (found == values.end()) {
    append(text, '-');  // no bias
    return;
  }
  const xnn::XNNTensorValue& tensor = *tensor_of(*found->second);
  append(text, tensor.datatype());
  if (shape && tensor.dims() != nullptr) {
    append(text, tensor.dims()->data(), tensor.dims()->size() * sizeof(std::uint32_t));
  }
  const auto* quantized = found->second->xvalue_union_as_XNNQuantizedTensorValue();
  if (quantized == nullptr) {
    return;
  }
  append(text, quantized->quant_params_type());
  if (const auto* whole = quantized->quant_params_as_PerTensorQuant()) {
    append(text, whole->scale());
    append(text, whole->zero_point());
  } else if (const auto* channels = quantized->quant_params_as_PerChannelQuant()) {
    append(text, channels->channel_dim());
    put_scales(text, payload, channels->scale_buffer_idx(), channels->scale());
  } else if (const auto* blocks = quantized->quant_params_as_PerChannelGroupQuant()) {
    append(text, blocks->channel_dim());
    append(text, blocks->group_size());
    put_scales(text, payload, blocks->scale_buffer_idx(), nullptr);
  }
}

// XNNPACK packs it, too, and its key has none for layers whose input is quantized at run time.
void put_bias(std::string* text, const XnnPayload& payload, const Values& values, std::uint32_t id) {
  const auto found = values.find(id);
  if (found == values.end()) {
    return;
  }
  const xnn::XNNTensorValue& tensor = *tensor_of(*found->second);
  const Bytes stored = payload.constant(tensor.constant_buffer_idx());
  std::size_t bytes = sizeof(float);  // of an element, at most
  for (std::size_t i = 0; tensor.dims() != nullptr && i < tensor.dims()->size(); ++i) {
    bytes *= tensor.dims()->data()[i];
  }
  put_content(text, stored.data, std::min(bytes, stored.size));
}

const xnn::_XNNNodeConv* convolution_of(const xnn::XNode& node) {
  switch (node.xnode_union_type()) {
    case xnn::XNodeUnion::XNNConv2d:
      return node.xnode_union_as_XNNConv2d();
    case xnn::XNodeUnion::XNNDepthwiseConv2d:
      return node.xnode_union_as_XNNDepthwiseConv2d();
    case xnn::XNodeUnion::XNNConvTranspose2d:
      return node.xnode_union_as_XNNConvTranspose2d();
    default:
      return nullptr;
  }
}

template <typename Layer>
std::string form_of(const XnnPayload& payload, const Values& values, const xnn::XNode& node,
                    const Layer& layer) {
  std::string text;
  append(&text, node.xnode_union_type());
  append(&text, layer.flags());
  put_value(&text, payload, values, layer.input1_id(), false);
  put_value(&text, payload, values, layer.filter_id(), true);
  put_value(&text, payload, values, layer.bias_id(), true);
  put_value(&text, payload, values, layer.output_id(), false);
  put_bias(&text, payload, values, layer.bias_id());
  return text;
}

}  // namespace

PackingForms packing_forms(const XnnPayload& payload) {
  Values values;
  for (const xnn::XValue* value : *payload.graph().xvalues()) {
    values[tensor_of(*value)->id_out()] = value;
  }
  PackingForms forms;
  for (const xnn::XNode* node : *payload.graph().xnodes()) {
    std::string form;
    std::uint32_t filter = 0;
    if (const auto* layer = node->xnode_union_as_XNNFullyConnected()) {
      form = form_of(payload, values, *node, *layer);
      filter = layer->filter_id();
    } else if (const auto* convolution = convolution_of(*node)) {
      form = form_of(payload, values, *node, *convolution);
      for (const std::uint32_t number :
           {convolution->kernel_height(), convolution->kernel_width(), convolution->groups(),
            convolution->group_input_channels(), convolution->group_output_channels()}) {
        append(&form, number);
      }
      filter = convolution->filter_id();
    } else {
      continue;
    }
    const auto found = values.find(filter);
    const std::size_t index =
        found == values.end() ? 0 : std::size_t{tensor_of(*found->second)->constant_buffer_idx()};
    const void* kernel = payload.constant(index).data;
    if (kernel == nullptr) {
      continue;
    }
    const auto [entry, is_new] = forms.try_emplace(kernel, form);
    if (!is_new && entry->second != form) {
      entry->second.clear();  // used in two ways
    }
  }
  return forms;
}

}  // namespace slipway::lean
