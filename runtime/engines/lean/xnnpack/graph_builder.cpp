#include "lean/xnnpack/graph_builder.h"

#include "lean/kernels/elements.h"
#include "program_file.h"
#include "slipway/tensor.h"

namespace slipway::lean {
namespace {

// The exporter stores 4-bit weights as unsigned numbers around this one.
constexpr std::int32_t kInt4ZeroPoint = 8;

// Whether a value of bfloat16 is one of float32 for XNNPACK. Constants stay: no node here takes them.
bool is_wide(const GraphFact& fact) {
  return fact.type == xnn_datatype_bf16 && !fact.constant;
}

}  // namespace

const char* name_of(xnn_status status) {
  constexpr const char* kNames[] = {"success",       "not initialized",       "invalid parameter",
                                    "invalid state", "unsupported parameter", "unsupported hardware",
                                    "out of memory"};
  static_assert(xnn_status_success == 0 && xnn_status_out_of_memory == 6,
                "in the order of XNNPACK's numbers");
  return status <= xnn_status_out_of_memory ? kNames[status] : "failure";
}

GraphBuilder::GraphBuilder(const GraphCheck& check, std::string what, const GraphPart* part, bool widen)
    : check_(check), what_(std::move(what)), part_(part), widen_(widen) {}

Status GraphBuilder::fault(const std::string& text) const {
  return {Code::kFile, what_ + ": " + text + ".", kCopyAgain};
}

Status GraphBuilder::build() {
  xnn_subgraph_t made = nullptr;
  if (xnn_create_subgraph(part_ == nullptr ? check_.externals() : part_->externals, 0, &made) !=
      xnn_status_success) {
    return {Code::kMemory, what_ + ": XNNPACK has no memory for its graph.", "use a device with more memory"};
  }
  subgraph_.reset(made);
  ids_.assign(check_.facts().size(), XNN_INVALID_VALUE_ID);
  for (std::uint32_t value = 0; value < ids_.size(); ++value) {
    if (part_ == nullptr || part_->values.count(value) != 0) {
      SLIPWAY_RETURN_IF_ERROR(define_value(value));
    }
  }
  for (const GraphNode& node : check_.nodes()) {
    if (part_ == nullptr || part_->nodes.count(node.index) != 0) {
      SLIPWAY_RETURN_IF_ERROR(define_node(node));
    }
  }
  for (const auto& [result, output] : narrowed_) {
    if (convert(result, output) != xnn_status_success) {
      return fault("its outputs in half precision cannot be converted");
    }
  }
  return {};
}

Status GraphBuilder::define_value(std::uint32_t value) {
  const GraphFact& fact = this->fact(value);
  PartValue part_value{fact.input    ? XNN_VALUE_FLAG_EXTERNAL_INPUT
                       : fact.output ? XNN_VALUE_FLAG_EXTERNAL_OUTPUT
                                     : 0U,
                       fact.external_id};
  if (part_ != nullptr) {
    part_value = part_->values.at(value);
  }
  if (part_value.flags != 0) {
    externals_.push_back({part_value.external_id, (part_value.flags & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0,
                          fact.type, fact.declared.rank, is_wide(fact)});
  } else {
    part_value.external_id = XNN_INVALID_VALUE_ID;
  }
  has_halves_ = has_halves_ || fact.type == xnn_datatype_fp16;
  const xnn_status status = widen_ && fact.type == xnn_datatype_fp16
                                ? define_widened(fact, part_value, &ids_[value])
                                : define_plain(fact, part_value, &ids_[value]);
  return status == xnn_status_success
             ? Status()
             : Status(Code::kFile,
                      what_ + ": XNNPACK refuses value " + std::to_string(fact.id) + " of type " +
                          lean::name_of(fact.type) + " (" + name_of(status) + ").",
                      "export the model again, or with another quantization scheme");
}

std::uint32_t GraphBuilder::id_of(std::uint32_t value) const {
  return value == kNoValue ? XNN_INVALID_VALUE_ID : ids_[value];
}

xnn_datatype GraphBuilder::type_of(std::uint32_t value) const {
  const GraphFact& fact = this->fact(value);
  return is_wide(fact) || (widen_ && fact.type == xnn_datatype_fp16) ? xnn_datatype_fp32 : fact.type;
}

xnn_status GraphBuilder::convert(std::uint32_t from, std::uint32_t to) {
  return xnn_define_unary(subgraph_.get(), xnn_unary_convert, nullptr, from, to, 0);
}

// A value of float16 as one of float32; behind an input, or before an output, of float16.
xnn_status GraphBuilder::define_widened(const GraphFact& fact, const PartValue& part_value,
                                        std::uint32_t* id) {
  const Dims& dims = fact.declared;
  const void* data = nullptr;
  std::size_t count = 0;
  if (fact.constant && count_all(dims, &count)) {
    // Behind the last element XNNPACK may read.
    widened_.emplace_back(count + XNN_EXTRA_BYTES / sizeof(float));
    load(DType::kFloat16, fact.data.data, 1, count, widened_.back().data());
    data = widened_.back().data();
  }
  xnn_status status = xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp32, dims.rank, dims.size.data(),
                                              data, XNN_INVALID_VALUE_ID, 0, id);
  if (status == xnn_status_success && part_value.flags != 0) {
    std::uint32_t outside = XNN_INVALID_VALUE_ID;
    status = xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp16, dims.rank, dims.size.data(), nullptr,
                                     part_value.external_id, part_value.flags, &outside);
    if (status == xnn_status_success && (part_value.flags & XNN_VALUE_FLAG_EXTERNAL_INPUT) != 0) {
      status = convert(outside, *id);
    }
    if ((part_value.flags & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0) {
      narrowed_.emplace_back(*id, outside);
    }
  }
  return status;
}

xnn_status GraphBuilder::define_plain(const GraphFact& fact, const PartValue& part_value, std::uint32_t* id) {
  xnn_subgraph_t to = subgraph_.get();
  const std::size_t rank = fact.declared.rank;
  const std::size_t* dims = fact.declared.size.data();
  const std::uint32_t external = part_value.external_id;
  switch (fact.type) {
    case xnn_datatype_qdint8:
      return xnn_define_dynamically_quantized_tensor_value(
          to, fact.type, rank, fact.by_pixels ? 1 : fact.nonbatch_dims, dims, external, part_value.flags, id);
    case xnn_datatype_qbint4:
      return xnn_define_blockwise_quantized_tensor_value(to, fact.type, kInt4ZeroPoint, fact.block_scales,
                                                         rank, fact.channel_dim, fact.block_size, dims,
                                                         fact.data.data, external, part_value.flags, id);
    case xnn_datatype_qcint4:
    case xnn_datatype_qcint8:
    case xnn_datatype_qcint32:
      return xnn_define_channelwise_quantized_tensor_value_v2(
          to, fact.type, fact.type == xnn_datatype_qcint4 ? kInt4ZeroPoint : 0, fact.scales, rank,
          fact.channel_dim, dims, fact.data.data, external, part_value.flags, id);
    case xnn_datatype_qint8:
    case xnn_datatype_quint8:
    case xnn_datatype_qint32:
      return xnn_define_quantized_tensor_value(to, fact.type, fact.zero_point, fact.scale, rank, dims,
                                               fact.data.data, external, part_value.flags, id);
    default:
      return xnn_define_tensor_value(to, is_wide(fact) ? xnn_datatype_fp32 : fact.type, rank, dims,
                                     fact.data.data, external, part_value.flags, id);
  }
}

Status GraphBuilder::define_node(const GraphNode& node) {
  const xnn_status status = define_xnn_node(*this, node);
  if (status == xnn_status_success) {
    return {};
  }
  const std::string name = xnn::EnumNameXNodeUnion(node.node->xnode_union_type());
  if (status == xnn_status_invalid_parameter) {
    return fault("its node " + std::to_string(node.node->debug_handle()) + ", " + name +
                 ", does not fit the values it names");
  }
  return {Code::kMissingOperator,
          what_ + ": this XNNPACK cannot do the node " + name + " (" + name_of(status) + ").",
          "leave the operator outside the delegate, or export with another quantization scheme",
          {name}};
}

bool GraphBuilder::feeds_only(std::uint32_t value, xnn_datatype weights) const {
  bool some = false;
  for (const GraphNode& node : check_.nodes()) {
    if (node.node->xnode_union_type() != xnn::XNodeUnion::XNNFullyConnected ||
        node.operands.inputs[0] != value) {
      continue;
    }
    if (fact(node.operands.inputs[1]).type != weights) {
      return false;
    }
    some = true;
  }
  return some;
}

}  // namespace slipway::lean
