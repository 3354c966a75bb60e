#include "lean/xnnpack/graph_builder.h"

#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstring>

#include "lean/kernels/elements.h"
#include "lean/xnnpack/rules.h"
#include "program_file.h"
#include "slipway/tensor.h"

namespace slipway::lean {
namespace {

// The exporter stores 4-bit weights as unsigned numbers around this one.
constexpr std::int32_t kInt4ZeroPoint = 8;

// Of inputs and outputs together: XNNPACK takes memory for each, some 200 bytes. Graphs have tens.
constexpr std::uint32_t kMostExternals = 1U << 16U;

std::vector<std::size_t> dims_of(const xnn::XNNTensorValue& value) {
  std::vector<std::size_t> dims;
  if (value.dims() != nullptr) {
    dims.assign(value.dims()->begin(), value.dims()->end());
  }
  return dims;
}

// Whether a value of bfloat16 is one of float32 for XNNPACK. Constants stay: no node here takes them.
bool is_wide(const xnn::XNNTensorValue& value) {
  return value.datatype() == xnn::XNNDatatype::xnn_datatype_bf16 && value.constant_buffer_idx() == 0;
}

}  // namespace

const char* name_of(xnn_status status) {
  switch (status) {
    case xnn_status_success:
      return "success";
    case xnn_status_uninitialized:
      return "not initialized";
    case xnn_status_invalid_parameter:
      return "invalid parameter";
    case xnn_status_invalid_state:
      return "invalid state";
    case xnn_status_unsupported_parameter:
      return "unsupported parameter";
    case xnn_status_unsupported_hardware:
      return "unsupported hardware";
    case xnn_status_out_of_memory:
      return "out of memory";
    default:
      return "failure";
  }
}

xnn_datatype to_xnn(xnn::XNNDatatype datatype) {
  const XnnType* row = find_type(datatype);
  return row == nullptr ? xnn_datatype_invalid : row->type;
}

GraphBuilder::GraphBuilder(const XnnPayload& payload, std::string what, const GraphPart* part, bool widen)
    : payload_(payload), what_(std::move(what)), part_(part), widen_(widen) {}

// Values of the external kind have a number the program knows; the others get XNNPACK's own.
PartValue GraphBuilder::part_value_of(const xnn::XNNTensorValue& value) const {
  PartValue part_value{value.flags(), value.external_id()};
  if (part_ != nullptr) {
    part_value = part_->values.at(value.id_out());
  }
  if ((part_value.flags & (XNN_VALUE_FLAG_EXTERNAL_INPUT | XNN_VALUE_FLAG_EXTERNAL_OUTPUT)) == 0) {
    part_value.external_id = XNN_INVALID_VALUE_ID;
  }
  return part_value;
}

Status GraphBuilder::fault(const std::string& text) const {
  return {Code::kFile, what_ + ": " + text + ".", kCopyAgain};
}

Status GraphBuilder::build() {
  const xnn::XNNGraph& graph = payload_.graph();
  xnn_subgraph_t made = nullptr;
  // A call may bring arguments that no node reads: there can be more of them than values.
  if (graph.num_externs() > kMostExternals) {
    return fault("it says it has " + std::to_string(graph.num_externs()) + " inputs and outputs");
  }
  const std::uint32_t externals = part_ == nullptr ? graph.num_externs() : part_->externals;
  if (xnn_create_subgraph(externals, 0, &made) != xnn_status_success) {
    return {Code::kMemory, what_ + ": XNNPACK has no memory for its graph.", "use a device with more memory"};
  }
  subgraph_.reset(made);
  values_.reserve(graph.xvalues()->size());
  for (const xnn::XValue* value : *graph.xvalues()) {
    SLIPWAY_RETURN_IF_ERROR(define_value(*value));
  }
  for (const xnn::XNode* node : *graph.xnodes()) {
    uses_.emplace_back();
    if (part_ != nullptr && part_->nodes.count(uses_.size() - 1) == 0) {
      continue;
    }
    SLIPWAY_RETURN_IF_ERROR(define_node(*node));
  }
  for (const auto& [result, output] : narrowed_) {
    if (convert(result, output) != xnn_status_success) {
      return fault("its outputs in half precision cannot be converted");
    }
  }
  return {};
}

Status GraphBuilder::define_value(const xnn::XValue& value) {
  const xnn::XNNTensorValue* tensor = tensor_of(value);
  if (part_ != nullptr && part_->values.count(tensor->id_out()) == 0) {
    return {};
  }
  const PartValue part_value = part_value_of(*tensor);
  if (part_value.external_id != XNN_INVALID_VALUE_ID) {
    externals_.push_back({part_value.external_id, (part_value.flags & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0,
                          to_xnn(tensor->datatype()), tensor->num_dims(), is_wide(*tensor)});
  }
  const auto* quantized = value.xvalue_union_as_XNNQuantizedTensorValue();
  return quantized == nullptr ? define_plain(*tensor) : define_quantized(*quantized);
}

// nullptr for no constant.
const void* GraphBuilder::constant_of(const xnn::XNNTensorValue& value) const {
  return payload_.constant(value.constant_buffer_idx()).data;
}

Status GraphBuilder::remember(const xnn::XNNTensorValue& value, xnn_status status, std::uint32_t id) {
  if (status != xnn_status_success) {
    return {Code::kFile,
            what_ + ": XNNPACK refuses value " + std::to_string(value.id_out()) + " of type " +
                xnn::EnumNameXNNDatatype(value.datatype()) + " (" + name_of(status) + ").",
            "export the model again, or with another quantization scheme"};
  }
  const bool widened = is_wide(value) || (widen_ && value.datatype() == xnn::XNNDatatype::xnn_datatype_fp16);
  GraphValue& entry = values_[value.id_out()];
  const bool constant = value.constant_buffer_idx() != 0;
  entry = {id, widened ? xnn_datatype_fp32 : to_xnn(value.datatype()), dims_of(value), constant};
  return {};
}

xnn_status GraphBuilder::convert(std::uint32_t from, std::uint32_t to) {
  return xnn_define_unary(subgraph_.get(), xnn_unary_convert, nullptr, from, to, 0);
}

// A value of float16 as one of float32; behind an input, or before an output, of float16.
Status GraphBuilder::define_widened(const xnn::XNNTensorValue& value, const void* data) {
  const PartValue part_value = part_value_of(value);
  const std::vector<std::size_t> dims = dims_of(value);
  if (data != nullptr) {
    std::size_t count = 1;
    for (const std::size_t dim : dims) {
      count *= dim;
    }
    // Behind the last element XNNPACK may read.
    widened_.emplace_back(count + XNN_EXTRA_BYTES / sizeof(float));
    const auto* halves = static_cast<const std::uint8_t*>(data);
    load(DType::kFloat16, halves, 1, count, widened_.back().data());
    data = widened_.back().data();
  }
  std::uint32_t id = XNN_INVALID_VALUE_ID;
  xnn_status status = xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp32, dims.size(), dims.data(),
                                              data, XNN_INVALID_VALUE_ID, 0, &id);
  if (status == xnn_status_success && part_value.external_id != XNN_INVALID_VALUE_ID) {
    std::uint32_t outside = XNN_INVALID_VALUE_ID;
    status = xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp16, dims.size(), dims.data(), nullptr,
                                     part_value.external_id, part_value.flags, &outside);
    if (status == xnn_status_success && (part_value.flags & XNN_VALUE_FLAG_EXTERNAL_INPUT) != 0) {
      status = convert(outside, id);
    }
    if ((part_value.flags & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0) {
      narrowed_.emplace_back(id, outside);
    }
  }
  return remember(value, status, id);
}

Status GraphBuilder::define_plain(const xnn::XNNTensorValue& value) {
  const void* data = constant_of(value);
  if (value.datatype() == xnn::XNNDatatype::xnn_datatype_fp16) {
    has_halves_ = true;
    if (widen_) {
      return define_widened(value, data);
    }
  }
  const PartValue part_value = part_value_of(value);
  std::uint32_t id = XNN_INVALID_VALUE_ID;
  const std::vector<std::size_t> dims = dims_of(value);
  const xnn_datatype datatype = is_wide(value) ? xnn_datatype_fp32 : to_xnn(value.datatype());
  const xnn_status status = xnn_define_tensor_value(subgraph_.get(), datatype, dims.size(), dims.data(), data,
                                                    part_value.external_id, part_value.flags, &id);
  return remember(value, status, id);
}

std::vector<float> GraphBuilder::scales_of(const xnn::PerChannelQuant& quant) const {
  if (quant.scale_buffer_idx() == 0) {
    return quant.scale() == nullptr ? std::vector<float>()
                                    : std::vector<float>(quant.scale()->begin(), quant.scale()->end());
  }
  const Bytes stored = payload_.constant(quant.scale_buffer_idx());
  std::vector<float> scales(std::min<std::size_t>(quant.num_scales(), stored.size / sizeof(float)));
  if (!scales.empty()) {
    std::memcpy(scales.data(), stored.data, scales.size() * sizeof(float));
  }
  return scales;
}

Status GraphBuilder::define_quantized(const xnn::XNNQuantizedTensorValue& quantized) {
  const xnn::XNNTensorValue& value = *quantized.tensor_value();
  const void* data = constant_of(value);
  const std::vector<std::size_t> dims = dims_of(value);
  const xnn_datatype datatype = to_xnn(value.datatype());
  const std::int32_t zero_point =
      datatype == xnn_datatype_qcint4 || datatype == xnn_datatype_qbint4 ? kInt4ZeroPoint : 0;
  const PartValue part_value = part_value_of(value);
  std::uint32_t id = XNN_INVALID_VALUE_ID;
  xnn_status status = xnn_status_invalid_parameter;
  if (const auto* tensor = quantized.quant_params_as_PerTensorQuant()) {
    status = xnn_define_quantized_tensor_value(subgraph_.get(), datatype, tensor->zero_point(),
                                               tensor->scale(), dims.size(), dims.data(), data,
                                               part_value.external_id, part_value.flags, &id);
  } else if (const auto* channels = quantized.quant_params_as_PerChannelQuant()) {
    const auto channel = static_cast<std::size_t>(channels->channel_dim());
    scales_.push_back(scales_of(*channels));
    status = xnn_define_channelwise_quantized_tensor_value_v2(
        subgraph_.get(), datatype, zero_point, scales_.back().data(), dims.size(), channel, dims.data(), data,
        part_value.external_id, part_value.flags, &id);
  } else if (const auto* blocks = quantized.quant_params_as_PerChannelGroupQuant()) {
    // Scales are bfloat16.
    const Bytes stored = payload_.constant(blocks->scale_buffer_idx());
    const auto channel = static_cast<std::size_t>(blocks->channel_dim());
    const auto size = static_cast<std::size_t>(blocks->group_size());
    status = xnn_define_blockwise_quantized_tensor_value(
        subgraph_.get(), datatype, zero_point, reinterpret_cast<const std::uint16_t*>(stored.data),
        dims.size(), channel, size, dims.data(), data, part_value.external_id, part_value.flags, &id);
  } else if (const auto* dynamic = quantized.quant_params_as_PerTokenDynamicQuant()) {
    const std::int32_t together =
        payload_.pixel_layers().is_rows(value.id_out()) ? 1 : dynamic->num_nonbatch_dims();
    status = xnn_define_dynamically_quantized_tensor_value(subgraph_.get(), datatype, dims.size(),
                                                           static_cast<std::size_t>(together), dims.data(),
                                                           part_value.external_id, part_value.flags, &id);
  }
  return remember(value, status, id);
}

Status GraphBuilder::define_node(const xnn::XNode& node) {
  const xnn_status status = define_xnn_node(*this, node);
  if (status == xnn_status_success) {
    return {};
  }
  const std::string name = xnn::EnumNameXNodeUnion(node.xnode_union_type());
  if (status == xnn_status_invalid_parameter) {
    return fault("its node " + std::to_string(node.debug_handle()) + ", " + name +
                 ", does not fit the values it names");
  }
  return {Code::kMissingOperator,
          what_ + ": this XNNPACK cannot do the node " + name + " (" + name_of(status) + ").",
          "leave the operator outside the delegate, or export with another quantization scheme",
          {name}};
}

const GraphValue& GraphBuilder::at(std::uint32_t exported_id) const {
  uses_.back().insert(exported_id);
  return values_.at(exported_id);
}

bool GraphBuilder::feeds_only(std::uint32_t exported_id, xnn_datatype weights) const {
  bool some = false;
  for (const xnn::XNode* node : *payload_.graph().xnodes()) {
    const auto* layer = node->xnode_union_as_XNNFullyConnected();
    if (layer == nullptr || layer->input1_id() != exported_id) {
      continue;
    }
    if (at(layer->filter_id()).datatype != weights) {
      return false;
    }
    some = true;
  }
  return some;
}

}  // namespace slipway::lean
