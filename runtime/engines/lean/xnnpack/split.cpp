#include "lean/xnnpack/matrix_layer.h"

#include <xnnpack.h>

#include <optional>
#include <utility>

namespace slipway::lean {
namespace {

bool is_float(const xnn::XNNTensorValue& tensor) {
  return tensor.datatype() == xnn::XNNDatatype::xnn_datatype_fp32;
}

// Layers by node, and the converters that only they read, with what these convert.
struct Found {
  std::map<std::size_t, MatrixLayer> layers;
  std::map<std::size_t, std::uint32_t> converters;  // node to the id of its input
  std::map<std::size_t, std::uint32_t> taken;       // layer's node to the id of what it takes
};

Found find_layers(const XnnPayload& payload, const Lifetimes& lifetimes, HasKernel has_kernel) {
  Found found;
  const auto& nodes = *payload.graph().xnodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const xnn::XNode& node = *nodes.Get(static_cast<flatbuffers::uoffset_t>(i));
    std::optional<MatrixLayer> layer = matrix_layer(payload, lifetimes, node);
    if (layer && has_kernel(*layer)) {
      found.layers.emplace(i, std::move(*layer));
      found.taken[i] = input_of(node);
    }
  }
  // All that read a converter's output, or none: it has no form outside of XNNPACK.
  for (const auto& [id, lifetime] : lifetimes) {
    if (lifetime.producer == kNoNode ||
        lifetime.tensor->datatype() != xnn::XNNDatatype::xnn_datatype_qdint8) {
      continue;
    }
    const auto* convert =
        nodes.Get(static_cast<flatbuffers::uoffset_t>(lifetime.producer))->xnode_union_as_XNNConvert();
    bool all = convert != nullptr && is_float(*lifetimes.at(convert->input_id()).tensor);
    for (const std::size_t consumer : lifetime.consumers) {
      all = all && found.layers.count(consumer) != 0;
    }
    if (all) {
      found.converters[lifetime.producer] = convert->input_id();
    }
    for (const std::size_t consumer : lifetime.consumers) {
      if (all) {
        found.taken[consumer] = convert->input_id();
      } else {
        found.layers.erase(consumer);
      }
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

// Nodes before which a graph may not end: they, or nodes behind them, read what has no form outside of
// XNNPACK.
std::set<std::size_t> joined_nodes(const Lifetimes& lifetimes) {
  std::set<std::size_t> joined;
  for (const auto& [id, lifetime] : lifetimes) {
    if (lifetime.producer == kNoNode || lifetime.constant() || has_form(lifetime.tensor->datatype())) {
      continue;
    }
    for (const std::size_t consumer : lifetime.consumers) {
      for (std::size_t i = lifetime.producer + 1; i <= consumer; ++i) {
        joined.insert(i);
      }
    }
  }
  return joined;
}

// The nodes in order: XNNPACK's in runs (`joined`: one by one, but for these), each layer alone.
std::vector<Stage> stages_of(std::size_t nodes, const Found& found, const std::set<std::size_t>* joined,
                             std::map<std::size_t, std::size_t>* of) {
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
      const bool apart = joined != nullptr && joined->count(i) == 0;
      if (stages.empty() || stages.back().is_layer || apart) {
        stages.emplace_back();
      }
      stages.back().part.nodes.insert(i);
    }
    (*of)[i] = stages.size() - 1;
  }
  return stages;
}

}  // namespace

Split split_graph(const XnnPayload& payload, const std::vector<std::set<std::uint32_t>>& uses,
                  const GivenConstants& given, HasKernel has_kernel, bool apart) {
  const Lifetimes lifetimes = lifetimes_of(payload, uses, given);
  const Found found = find_layers(payload, lifetimes, has_kernel);
  if (found.layers.empty() && !apart) {
    return {};
  }
  Split split;
  std::map<std::size_t, std::size_t> stage_of;
  const std::set<std::size_t> joined = joined_nodes(lifetimes);
  split.stages = stages_of(uses.size(), found, apart ? &joined : nullptr, &stage_of);
  // A layer of rows that it quantizes itself takes what its converter took.
  std::map<std::uint32_t, std::set<std::size_t>> extra;
  std::map<std::size_t, std::uint32_t> taken;  // by stages
  for (const auto& [node, layer] : found.layers) {
    extra[found.taken.at(node)].insert(stage_of.at(node));
    taken[stage_of.at(node)] = found.taken.at(node);
  }
  const std::uint32_t externals = payload.graph().num_externs();
  for (const auto& [id, lifetime] : lifetimes) {
    if (lifetime.producer != kNoNode && found.converters.count(lifetime.producer) != 0) {
      continue;
    }
    const std::size_t producer = lifetime.producer == kNoNode ? kNoNode : stage_of.at(lifetime.producer);
    std::set<std::size_t> consumers;
    for (const std::size_t node : lifetime.consumers) {
      if (found.converters.count(node) == 0) {
        consumers.insert(stage_of.at(node));
      }
    }
    const auto more = extra.find(id);
    if (more != extra.end()) {
      consumers.insert(more->second.begin(), more->second.end());
    }
    if (lifetime.constant()) {
      for (const std::size_t stage : consumers) {
        split.stages[stage].part.values[id] = {};
      }
      continue;
    }
    consumers.erase(producer);
    const bool leaves = (lifetime.tensor->flags() & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0;
    std::uint32_t external_id = lifetime.tensor->external_id();
    if ((lifetime.tensor->flags() & kExternalFlags) == 0 && !consumers.empty()) {
      if (!has_form(lifetime.tensor->datatype())) {
        return {};
      }
      external_id = externals + static_cast<std::uint32_t>(split.crossings.size());
      Crossing& crossing = split.crossings.emplace_back();
      crossing.datatype = lifetime.tensor->datatype();
      crossing.made = producer;
      crossing.last = *consumers.rbegin();
      if (lifetime.tensor->dims() != nullptr) {
        crossing.dims.assign(lifetime.tensor->dims()->begin(), lifetime.tensor->dims()->end());
      }
    }
    const bool out = leaves || !consumers.empty();
    if (producer != kNoNode && out) {
      split.probes.push_back({producer, lifetime.producer, external_id});
    }
    if (producer != kNoNode) {
      Stage& stage = split.stages[producer];
      if (stage.is_layer) {
        stage.layer.output = external_id;
      } else {
        stage.part.values[id] = out ? PartValue{XNN_VALUE_FLAG_EXTERNAL_OUTPUT, external_id} : PartValue{};
      }
    }
    for (const std::size_t consumer : consumers) {
      Stage& stage = split.stages[consumer];
      if (!stage.is_layer) {
        stage.part.values[id] = {XNN_VALUE_FLAG_EXTERNAL_INPUT, external_id};
        continue;
      }
      if (taken.at(consumer) == id) {
        stage.layer.input = external_id;
      }
      if (stage.layer.given && stage.layer.given_id == id) {
        stage.layer.other = external_id;
      }
    }
  }
  for (Stage& stage : split.stages) {
    stage.part.externals = externals + static_cast<std::uint32_t>(split.crossings.size());
  }
  return split;
}

}  // namespace slipway::lean
