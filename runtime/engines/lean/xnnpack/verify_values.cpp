// What a value says of itself (type, shape, quantization, constant), and what a call gives a graph, against
// what the graph takes and makes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/platform.h"
#include "lean/xnnpack/rules.h"
#include "program_file.h"
#include "slipway/tensor.h"

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
  fact->scales = quant.scale() == nullptr ? nullptr : quant.scale()->data();
  if (quant.scale_buffer_idx() != 0) {
    const Bytes bytes = payload.constant(quant.scale_buffer_idx());
    if (!is_aligned(bytes, sizeof(float))) {
      return "its scales lie at an address that float32 cannot have";
    }
    const std::size_t stored = bytes.size / sizeof(float);
    found = quant.num_scales() <= stored ? quant.num_scales() : stored;
    fact->scales = reinterpret_cast<const float*>(bytes.data);
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
  fact->block_scales = reinterpret_cast<const std::uint16_t*>(stored.data);
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

Fault read_quantization(const xnn::XNNQuantizedTensorValue* quantized, const XnnPayload& payload,
                        GraphFact* fact) {
  if (quantized == nullptr) {
    const bool needs_none =
        is_one_of(fact->type, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_bf16, xnn_datatype_int32});
    return needs_none ? "" : "it is of a quantized type, and says nothing of its scale";
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

Fault read_constant(const xnn::XNNTensorValue& tensor, const XnnPayload& payload, GraphFact* fact) {
  std::size_t needed = 0;
  if (!count_bytes(fact->declared, fact->type, &needed)) {
    return "it is too large for any memory";
  }
  if (!fact->constant) {
    return {};
  }
  const Bytes stored = fact->data = payload.constant(tensor.constant_buffer_idx());
  if (!is_aligned(stored, bits_of(fact->type) / 8)) {
    return "it is a constant at an address that its type cannot have";
  }
  return stored.data != nullptr && stored.size >= needed
             ? Fault()
             : "it is a constant of " + std::to_string(needed) + " bytes, and " +
                   std::to_string(stored.size) + " are stored";
}

}  // namespace

bool read_fact(const xnn::XValue& value, const XnnPayload& payload, GraphFact* fact, Fault* text) {
  const auto* quantized = value.xvalue_union_as_XNNQuantizedTensorValue();
  const auto* tensor =
      quantized != nullptr ? quantized->tensor_value() : value.xvalue_union_as_XNNTensorValue();
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
  constexpr std::uint32_t kExternal = XNN_VALUE_FLAG_EXTERNAL_INPUT | XNN_VALUE_FLAG_EXTERNAL_OUTPUT;
  if ((tensor->flags() & ~kExternal) != 0 || fact->constant + fact->input + fact->output > 1) {
    *text = "it cannot be what its flags " + std::to_string(tensor->flags()) + " say";
    return true;
  }
  *text = read_quantization(quantized, payload, fact);
  if (text->empty()) {
    *text = read_constant(*tensor, payload, fact);
  }
  return true;
}

DType dtype_of_value(xnn_datatype type) {
  switch (type) {
    case xnn_datatype_fp32:
      return DType::kFloat32;
    case xnn_datatype_fp16:
      return DType::kFloat16;
    case xnn_datatype_bf16:
      return DType::kBFloat16;
    case xnn_datatype_qint8:
      return DType::kInt8;
    case xnn_datatype_quint8:
      return DType::kUInt8;
    case xnn_datatype_int32:
    case xnn_datatype_qint32:
      return DType::kInt32;
    default:
      return DType::kUnknown;
  }
}

namespace {

// In the order in which they lie in memory. False for more dimensions than XNNPACK knows.
bool given_dims(const TensorView& view, Dims* dims) {
  dims->rank = view.rank;
  for (std::size_t i = 0; i < view.rank && i < dims->size.size(); ++i) {
    const std::int64_t size = view.sizes[view.order[i]];
    if (size < 0) {
      return false;
    }
    (*dims)[i] = static_cast<std::size_t>(size);
  }
  return view.rank <= dims->size.size();
}

// A single number is as good without dimensions as with any of 1.
bool is_single(const Dims& dims) {
  std::size_t count = 0;
  return count_all(dims, &count) && count == 1;
}

std::string text_of(const TensorView& view) {
  return std::string(name_of(view.dtype)) + " " + to_text(view.shape());
}

}  // namespace

Status GraphCheck::take_input(const TensorView* view, std::uint32_t external_id) {
  const std::uint32_t value = externals_[external_id];
  const GraphFact& fact = facts_[value];
  const std::string name = "its input " + std::to_string(external_id);
  if (view == nullptr) {
    return fault("its call gives no tensor for value " + std::to_string(fact.id) + ", " + name);
  }
  if (view->dtype != dtype_of_value(fact.type)) {
    return fault(name + " is " + text_of(*view) + ", not of type " + name_of(fact.type) + ", as value " +
                 std::to_string(fact.id) + " is declared");
  }
  Dims dims;
  const bool known = given_dims(*view, &dims);
  if (known && dims.rank != fact.declared.rank && is_single(dims) && is_single(fact.declared)) {
    dims = fact.declared;
  }
  // What the program says is always so, the graph has to have said, too.
  const bool fits = known && dims.rank == fact.declared.rank &&
                    (view->dynamism != Dynamism::kStatic || dims == fact.declared);
  if (!fits) {
    return fault(name + " is " + text_of(*view) + ", and value " + std::to_string(fact.id) +
                 " is declared as " + shape_text(fact.declared));
  }
  if (view->bytes() > view->capacity) {
    return fault(name + " is " + text_of(*view) + ", and has " + std::to_string(view->capacity) + " bytes");
  }
  shapes_[value] = dims;
  return {};
}

Status GraphCheck::take_output(const TensorView* view, std::uint32_t external_id) const {
  const std::uint32_t value = externals_[external_id];
  const GraphFact& fact = facts_[value];
  const Dims& made = shapes_[value];
  const std::string name = "its output " + std::to_string(external_id);
  if (view == nullptr || view->constant) {
    return fault(view == nullptr
                     ? "its call gives no tensor for value " + std::to_string(fact.id) + ", " + name
                     : name + " is a constant of the program");
  }
  // XNNPACK writes indices as 32-bit numbers; the program may have a tensor of 64-bit ones for them.
  const bool indices = view->dtype == DType::kInt64 && dtype_of_value(fact.type) == DType::kInt32;
  if (!indices && view->dtype != dtype_of_value(fact.type)) {
    return fault(name + " is " + text_of(*view) + ", and value " + std::to_string(fact.id) +
                 " is declared as " + name_of(fact.type));
  }
  Dims dims;
  std::size_t count = 0;
  std::size_t given = 0;
  const bool known =
      given_dims(*view, &dims) && count_all(made, &count) && count <= view->capacity / size_of(view->dtype);
  const bool fits = dims.rank == made.rank ? view->dynamism != Dynamism::kStatic || dims == made
                                           : known && count_all(dims, &given) && given == count;
  return known && fits ? Status()
                       : fault(name + " does not fit the tensor " + text_of(*view) +
                               " of the program: it is " + shape_text(made));
}

Status GraphCheck::accept(const std::vector<TensorView*>& arguments) {
  bool seen = std::exchange(accepted_, false);
  const auto view_of = [&](std::size_t argument) {
    return argument < arguments.size() ? arguments[argument] : nullptr;
  };
  bool dynamic = false;
  for (std::size_t argument = 0; argument < externals_.size(); ++argument) {
    if (externals_[argument] != kNoValue && facts_[externals_[argument]].input) {
      const TensorView* view = view_of(argument);
      const Dims before = shapes_[externals_[argument]];
      SLIPWAY_RETURN_IF_ERROR(take_input(view, static_cast<std::uint32_t>(argument)));
      dynamic = dynamic || view->dynamism != Dynamism::kStatic;
      seen = seen && shapes_[externals_[argument]] == before;
    }
  }
  if (seen) {
    accepted_ = true;
    return {};
  }
  // A result's sizes follow from the inputs': an output that calls itself dynamic proves nothing.
  if (!loose_.empty() && !dynamic) {
    return fault(loose_);
  }
  const Fault wrong = follow();
  if (!wrong.empty()) {
    return {Code::kExecution, what_ + ": " + wrong + ".",
            "give inputs of shapes that the model takes, or export it with these dimensions dynamic"};
  }
  for (std::size_t argument = 0; argument < externals_.size(); ++argument) {
    if (externals_[argument] != kNoValue && facts_[externals_[argument]].output) {
      SLIPWAY_RETURN_IF_ERROR(take_output(view_of(argument), static_cast<std::uint32_t>(argument)));
    }
  }
  // XNNPACK keeps the memory that it had for larger shapes.
  const Status room = peak_ <= had_ ? Status() : check_room(peak_, what_);
  had_ = room.ok() ? std::max(had_, peak_) : had_;
  accepted_ = room.ok();
  return room;
}

}  // namespace slipway::lean
