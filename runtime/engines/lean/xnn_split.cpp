#include "xnn_split.h"

#include <xnnpack.h>

#include <cstring>
#include <limits>
#include <optional>

namespace slipway::lean {
namespace {

constexpr std::size_t kNobody = SIZE_MAX;
constexpr std::uint32_t kExternal = XNN_VALUE_FLAG_EXTERNAL_INPUT | XNN_VALUE_FLAG_EXTERNAL_OUTPUT;

const xnn::XNNTensorValue* tensor_of(const xnn::XValue& value) {
  const auto* quantized = value.xvalue_union_as_XNNQuantizedTensorValue();
  return quantized != nullptr ? quantized->tensor_value() : value.xvalue_union_as_XNNTensorValue();
}

// Who makes a value and who takes it: nodes at first, stages later.
struct Life {
  const xnn::XValue* value = nullptr;
  const xnn::XNNTensorValue* tensor = nullptr;
  std::size_t maker = kNobody;
  std::set<std::size_t> takers;

  bool constant() const { return tensor->constant_buffer_idx() != 0; }
  bool given() const { return (tensor->flags() & XNN_VALUE_FLAG_EXTERNAL_INPUT) != 0; }
};

using Lives = std::map<std::uint32_t, Life>;

// Nodes come in an order in which they can run: the first that names a value that is neither given nor
// constant makes it.
Lives lives_of(const XnnPayload& payload, const std::vector<std::set<std::uint32_t>>& uses) {
  Lives lives;
  for (const xnn::XValue* value : *payload.graph().xvalues()) {
    const xnn::XNNTensorValue* tensor = tensor_of(*value);
    Life& life = lives[tensor->id_out()];
    life.value = value;
    life.tensor = tensor;
  }
  for (std::size_t node = 0; node < uses.size(); ++node) {
    for (const std::uint32_t id : uses[node]) {
      Life& life = lives.at(id);
      if (life.maker == kNobody && !life.given() && !life.constant()) {
        life.maker = node;
      } else {
        life.takers.insert(node);
      }
    }
  }
  return lives;
}

bool is_float(const xnn::XNNTensorValue& tensor) {
  return tensor.datatype() == xnn::XNNDatatype::xnn_datatype_fp32;
}

// The layer, when it is one that this is for. Its activations come from `converter`.
std::optional<LinearLayer> layer_of(const XnnPayload& payload, const Lives& lives, const xnn::XNode& node,
                                    std::size_t* converter) {
  const auto* layer = node.xnode_union_as_XNNFullyConnected();
  if (layer == nullptr || layer->flags() != 0) {
    return {};
  }
  const Life& activations = lives.at(layer->input1_id());
  const Life& filter = lives.at(layer->filter_id());
  const Life& output = lives.at(layer->output_id());
  const auto* quantized = filter.value->xvalue_union_as_XNNQuantizedTensorValue();
  const auto* channels = quantized == nullptr ? nullptr : quantized->quant_params_as_PerChannelQuant();
  if (activations.tensor->datatype() != xnn::XNNDatatype::xnn_datatype_qdint8 || channels == nullptr ||
      filter.tensor->datatype() != xnn::XNNDatatype::xnn_datatype_qcint8 || !filter.constant() ||
      filter.tensor->dims()->size() != 2 || channels->channel_dim() != 0 || !is_float(*output.tensor) ||
      activations.maker == kNobody) {
    return {};
  }
  LinearLayer found;
  found.outputs = filter.tensor->dims()->Get(0);
  found.depth = filter.tensor->dims()->Get(1);
  const auto* dims = activations.tensor->dims();
  if (found.outputs == 0 || found.depth == 0 || found.depth % 8 != 0 || dims == nullptr ||
      dims->size() == 0 || dims->Get(dims->size() - 1) != found.depth ||
      output.tensor->num_dims() != dims->size()) {
    return {};
  }
  found.rows = 1;
  for (flatbuffers::uoffset_t i = 0; i + 1 < dims->size(); ++i) {
    found.rows *= dims->Get(i);
  }
  if (channels->scale_buffer_idx() != 0) {
    const Bytes stored = payload.constant(channels->scale_buffer_idx());
    found.scales.resize(stored.size / sizeof(float));
    std::memcpy(found.scales.data(), stored.data, found.scales.size() * sizeof(float));
  } else if (channels->scale() != nullptr) {
    found.scales.assign(channels->scale()->begin(), channels->scale()->end());
  }
  found.weights =
      reinterpret_cast<const std::int8_t*>(payload.constant(filter.tensor->constant_buffer_idx()).data);
  const auto bias = lives.find(layer->bias_id());
  if (bias != lives.end()) {
    found.bias =
        reinterpret_cast<const float*>(payload.constant(bias->second.tensor->constant_buffer_idx()).data);
    if (found.bias == nullptr || !is_float(*bias->second.tensor)) {
      return {};
    }
  }
  const xnn::OutputMinMax* range = node.output_min_max();
  found.min = range == nullptr ? -std::numeric_limits<float>::infinity() : range->output_min();
  found.max = range == nullptr ? std::numeric_limits<float>::infinity() : range->output_max();
  *converter = activations.maker;
  return found.scales.size() == found.outputs ? std::optional<LinearLayer>(found) : std::nullopt;
}

// Layers by node, and the converters that only they read, with what these convert.
struct Found {
  std::map<std::size_t, LinearLayer> layers;
  std::map<std::size_t, std::uint32_t> converters;  // node to the id of its input
  std::map<std::size_t, std::size_t> converter_of;  // layer's node to its converter
};

Found find_layers(const XnnPayload& payload, const Lives& lives) {
  Found found;
  const auto& nodes = *payload.graph().xnodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::size_t converter = kNobody;
    std::optional<LinearLayer> layer =
        layer_of(payload, lives, *nodes.Get(static_cast<flatbuffers::uoffset_t>(i)), &converter);
    if (layer) {
      found.layers.emplace(i, std::move(*layer));
      found.converter_of[i] = converter;
    }
  }
  // All that read a converter's output, or none: it has no form outside of XNNPACK.
  for (const auto& [id, life] : lives) {
    if (life.maker == kNobody || life.tensor->datatype() != xnn::XNNDatatype::xnn_datatype_qdint8) {
      continue;
    }
    const auto* convert =
        nodes.Get(static_cast<flatbuffers::uoffset_t>(life.maker))->xnode_union_as_XNNConvert();
    bool all = convert != nullptr && is_float(*lives.at(convert->input_id()).tensor);
    for (const std::size_t taker : life.takers) {
      all = all && found.layers.count(taker) != 0;
    }
    if (all) {
      found.converters[life.maker] = convert->input_id();
      continue;
    }
    for (const std::size_t taker : life.takers) {
      found.layers.erase(taker);
    }
  }
  return found;
}

bool has_form(xnn::XNNDatatype datatype) {
  switch (datatype) {
    case xnn::XNNDatatype::xnn_datatype_fp32:
    case xnn::XNNDatatype::xnn_datatype_fp16:
    case xnn::XNNDatatype::xnn_datatype_qint8:
    case xnn::XNNDatatype::xnn_datatype_quint8:
      return true;
    default:
      return false;
  }
}

// The nodes in order: XNNPACK's in runs, each layer alone.
std::vector<Stage> stages_of(std::size_t nodes, const Found& found, std::map<std::size_t, std::size_t>* of) {
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < nodes; ++i) {
    if (found.converters.count(i) != 0) {
      continue;
    }
    const auto layer = found.layers.find(i);
    if (layer != found.layers.end()) {
      stages.emplace_back().is_layer = true;
      stages.back().layer = layer->second;
    } else {
      if (stages.empty() || stages.back().is_layer) {
        stages.emplace_back();
      }
      stages.back().part.nodes.insert(i);
    }
    (*of)[i] = stages.size() - 1;
  }
  return stages;
}

}  // namespace

Split split_graph(const XnnPayload& payload, const std::vector<std::set<std::uint32_t>>& uses) {
  const Lives lives = lives_of(payload, uses);
  const Found found = find_layers(payload, lives);
  if (found.layers.empty()) {
    return {};
  }
  Split split;
  std::map<std::size_t, std::size_t> stage_of;
  split.stages = stages_of(uses.size(), found, &stage_of);
  // A layer takes what its converter took.
  std::map<std::uint32_t, std::set<std::size_t>> extra;
  for (const auto& [node, layer] : found.layers) {
    extra[found.converters.at(found.converter_of.at(node))].insert(stage_of.at(node));
  }
  const std::uint32_t externals = payload.graph().num_externs();
  for (const auto& [id, life] : lives) {
    if (life.maker != kNobody && found.converters.count(life.maker) != 0) {
      continue;
    }
    const std::size_t maker = life.maker == kNobody ? kNobody : stage_of.at(life.maker);
    std::set<std::size_t> takers;
    for (const std::size_t node : life.takers) {
      if (found.converters.count(node) == 0) {
        takers.insert(stage_of.at(node));
      }
    }
    const auto more = extra.find(id);
    if (more != extra.end()) {
      takers.insert(more->second.begin(), more->second.end());
    }
    if (life.constant()) {
      for (const std::size_t stage : takers) {
        split.stages[stage].part.values[id] = {};
      }
      continue;
    }
    takers.erase(maker);
    const bool leaves = (life.tensor->flags() & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0;
    std::uint32_t place = life.tensor->external_id();
    if ((life.tensor->flags() & kExternal) == 0 && !takers.empty()) {
      if (!has_form(life.tensor->datatype())) {
        return {};
      }
      place = externals + static_cast<std::uint32_t>(split.crossings.size());
      Crossing& crossing = split.crossings.emplace_back();
      crossing.datatype = life.tensor->datatype();
      if (life.tensor->dims() != nullptr) {
        crossing.dims.assign(life.tensor->dims()->begin(), life.tensor->dims()->end());
      }
    }
    const bool out = leaves || !takers.empty();
    if (maker != kNobody) {
      Stage& stage = split.stages[maker];
      if (stage.is_layer) {
        stage.layer.output = place;
      } else {
        stage.part.values[id] = out ? PartValue{XNN_VALUE_FLAG_EXTERNAL_OUTPUT, place} : PartValue{};
      }
    }
    for (const std::size_t taker : takers) {
      Stage& stage = split.stages[taker];
      if (stage.is_layer) {
        stage.layer.input = place;
      } else {
        stage.part.values[id] = {XNN_VALUE_FLAG_EXTERNAL_INPUT, place};
      }
    }
  }
  for (Stage& stage : split.stages) {
    stage.part.externals = externals + static_cast<std::uint32_t>(split.crossings.size());
  }
  return split;
}

}  // namespace slipway::lean
