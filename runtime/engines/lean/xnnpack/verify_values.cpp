// What a value says of itself: type, shape, quantization, constant.
#include <cmath>

#include "lean/xnnpack/graph_builder.h"
#include "lean/xnnpack/verify.h"

namespace slipway::lean {
namespace {

// XNNPACK reads elements as numbers of their type, which not every processor does at any address.
bool is_aligned(Bytes bytes, std::size_t element) {
  return element < 2 || reinterpret_cast<std::uintptr_t>(bytes.data) % element == 0;
}

bool is_scale(float scale) {
  return std::isnormal(scale) && scale > 0;
}

Fault read_whole(const xnn::PerTensorQuant& quant, GraphFact* fact) {
  fact->scale = quant.scale();
  fact->zero_point = quant.zero_point();
  if (!is_one_of(fact->type, {xnn_datatype_qint8, xnn_datatype_quint8, xnn_datatype_qint32})) {
    return "its type has another kind of quantization than one scale for all";
  }
  const bool is_signed = fact->type == xnn_datatype_qint8;
  const bool is_wide = fact->type == xnn_datatype_qint32;
  const std::int32_t least = is_signed ? -128 : 0;
  const std::int32_t most = is_wide ? 0 : (is_signed ? 127 : 255);
  if (fact->zero_point < least || fact->zero_point > most) {
    return "its zero point " + std::to_string(fact->zero_point) + " is outside of " + std::to_string(least) +
           " to " + std::to_string(most);
  }
  return is_scale(fact->scale) ? Fault() : "its scale " + std::to_string(fact->scale) + " is impossible";
}

Fault read_channels(const xnn::PerChannelQuant& quant, const XnnPayload& payload, GraphFact* fact) {
  const std::int32_t channel = quant.channel_dim();
  if (!is_one_of(fact->type, {xnn_datatype_qcint8, xnn_datatype_qcint4, xnn_datatype_qcint32})) {
    return "its type has another kind of quantization than a scale for each channel";
  }
  if (channel < 0 || static_cast<std::size_t>(channel) >= fact->declared.rank || !fact->constant) {
    return "its dimension " + std::to_string(channel) + " cannot have a scale for each channel";
  }
  fact->channel_dim = static_cast<std::size_t>(channel);
  const std::size_t needed = fact->declared[fact->channel_dim];
  std::size_t found = quant.scale() == nullptr ? 0 : quant.scale()->size();
  if (quant.scale_buffer_idx() != 0) {
    const Bytes bytes = payload.constant(quant.scale_buffer_idx());
    if (!is_aligned(bytes, sizeof(float))) {
      return "its scales lie at an address that float32 cannot have";
    }
    const std::size_t stored = bytes.size / sizeof(float);
    found = quant.num_scales() <= stored ? quant.num_scales() : stored;
  }
  return found == needed
             ? Fault()
             : "it has " + std::to_string(found) + " scales for " + std::to_string(needed) + " channels";
}

Fault read_blocks(const xnn::PerChannelGroupQuant& quant, const XnnPayload& payload, GraphFact* fact) {
  const std::int32_t channel = quant.channel_dim();
  const std::int32_t size = quant.group_size();
  if (fact->type != xnn_datatype_qbint4) {
    return "its type has another kind of quantization than a scale for each block";
  }
  if (fact->declared.rank != 2 || channel < 0 || channel > 1 || size <= 0 || !fact->constant ||
      fact->declared[1 - static_cast<std::size_t>(channel)] % static_cast<std::size_t>(size) != 0) {
    return "it cannot have a scale for each block of " + std::to_string(size);
  }
  fact->channel_dim = static_cast<std::size_t>(channel);
  fact->block_size = static_cast<std::size_t>(size);
  const Bytes stored = payload.constant(quant.scale_buffer_idx());
  if (!is_aligned(stored, sizeof(std::uint16_t))) {
    return "its scales lie at an odd address";
  }
  const std::size_t blocks = fact->declared[1 - fact->channel_dim] / fact->block_size;
  const std::size_t found = stored.size / sizeof(std::uint16_t);
  const std::size_t channels = fact->declared[fact->channel_dim];
  return blocks == 0 || channels <= found / blocks
             ? Fault()
             : "it has " + std::to_string(found) + " scales for " + std::to_string(channels) + " times " +
                   std::to_string(blocks) + " blocks";
}

Fault read_dynamic(const xnn::PerTokenDynamicQuant& quant, GraphFact* fact) {
  const std::int32_t last = quant.num_nonbatch_dims();
  if (fact->type != xnn_datatype_qdint8 || fact->constant || fact->input || fact->output) {
    return "it cannot be quantized while the graph runs";
  }
  if (last < 1 || static_cast<std::size_t>(last) > fact->declared.rank) {
    return "it cannot be quantized by its last " + std::to_string(last) + " sizes";
  }
  fact->nonbatch_dims = static_cast<std::size_t>(last);
  return {};
}

Fault read_quantization(const xnn::XValue& value, const XnnPayload& payload, GraphFact* fact) {
  const auto* quantized = value.xvalue_union_as_XNNQuantizedTensorValue();
  if (quantized == nullptr) {
    return is_one_of(fact->type,
                     {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_bf16, xnn_datatype_int32})
               ? Fault()
               : Fault("it is of a quantized type, and says nothing of its scale");
  }
  if (const auto* whole = quantized->quant_params_as_PerTensorQuant()) {
    return read_whole(*whole, fact);
  }
  if (const auto* channels = quantized->quant_params_as_PerChannelQuant()) {
    return read_channels(*channels, payload, fact);
  }
  if (const auto* blocks = quantized->quant_params_as_PerChannelGroupQuant()) {
    return read_blocks(*blocks, payload, fact);
  }
  const auto* dynamic = quantized->quant_params_as_PerTokenDynamicQuant();
  return dynamic != nullptr ? read_dynamic(*dynamic, fact) : Fault("it is quantized in an unknown way");
}

Fault read_constant(const xnn::XNNTensorValue& tensor, const XnnPayload& payload, const GraphFact& fact) {
  std::size_t needed = 0;
  if (!count_bytes(fact.declared, fact.type, &needed)) {
    return "it is too large for any memory";
  }
  if (!fact.constant) {
    return {};
  }
  const Bytes stored = payload.constant(tensor.constant_buffer_idx());
  if (!is_aligned(stored, bits_of(fact.type) / 8)) {
    return "it is a constant at an address that its type cannot have";
  }
  return stored.data != nullptr && stored.size >= needed
             ? Fault()
             : "it is a constant of " + std::to_string(needed) + " bytes, and " +
                   std::to_string(stored.size) + " are stored";
}

}  // namespace

bool read_fact(const xnn::XValue& value, const XnnPayload& payload, GraphFact* fact, Fault* text) {
  const xnn::XNNTensorValue* tensor = tensor_of(value);
  if (tensor == nullptr) {
    *text = "it has an empty value";
    return true;
  }
  fact->id = tensor->id_out();
  fact->type = to_xnn(tensor->datatype());
  if (bits_of(fact->type) == 0 || tensor->dq_datatype() != xnn::XNNDatatype::xnn_datatype_invalid) {
    *text = xnn::EnumNameXNNDatatype(tensor->datatype());
    return false;
  }
  const auto* dims = tensor->dims();
  const std::size_t rank = dims == nullptr ? 0 : dims->size();
  if (rank != tensor->num_dims() || rank > XNN_MAX_TENSOR_DIMS) {
    *text = "it has " + std::to_string(rank) + " sizes and says " + std::to_string(tensor->num_dims()) +
            "; XNNPACK knows up to " + std::to_string(XNN_MAX_TENSOR_DIMS);
    return true;
  }
  fact->declared.rank = rank;
  for (std::size_t i = 0; i < rank; ++i) {
    fact->declared[i] = dims->Get(static_cast<flatbuffers::uoffset_t>(i));
  }
  fact->constant = tensor->constant_buffer_idx() != 0;
  fact->input = (tensor->flags() & XNN_VALUE_FLAG_EXTERNAL_INPUT) != 0;
  fact->output = (tensor->flags() & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0;
  fact->external_id = tensor->external_id();
  if ((tensor->flags() & ~kExternalFlags) != 0 || fact->constant + fact->input + fact->output > 1) {
    *text = "it cannot be what its flags " + std::to_string(tensor->flags()) + " say";
    return true;
  }
  *text = read_quantization(value, payload, fact);
  if (text->empty()) {
    *text = read_constant(*tensor, payload, *fact);
  }
  return true;
}

}  // namespace slipway::lean
