#include "lean/xnnpack/matrix_layer.h"

#include <algorithm>
#include <utility>

namespace slipway::lean {
namespace {

constexpr std::size_t kNoNode = SIZE_MAX;

// Which node produces a value, and which ones consume it.
struct Lifetime {
  std::size_t producer = kNoNode;
  std::set<std::size_t> consumers;
};

// Of a graph's values, by their indices.
using Lifetimes = std::vector<Lifetime>;

Lifetimes lifetimes_of(const GraphCheck& check) {
  Lifetimes lifetimes(check.facts().size());
  for (const GraphNode& node : check.nodes()) {
    for (std::size_t i = 0; i < node.operands.input_count; ++i) {
      if (node.operands.inputs[i] != kNoValue) {
        lifetimes[node.operands.inputs[i]].consumers.insert(node.index);
      }
    }
    for (std::size_t i = 0; i < node.operands.output_count; ++i) {
      lifetimes[node.operands.outputs[i]].producer = node.index;
    }
  }
  return lifetimes;
}

// Layers by node, and the converters that only they read.
struct Found {
  std::map<std::size_t, MatrixLayer> layers;
  std::set<std::size_t> converters;
  std::map<std::size_t, std::uint32_t> taken;  // layer's node to the index of the value that it takes
};

Found find_layers(const GraphCheck& check, const Lifetimes& lifetimes, HasKernel has_kernel) {
  Found found;
  for (const GraphNode& node : check.nodes()) {
    std::optional<MatrixLayer> layer = matrix_layer(check, node);
    if (layer && has_kernel(*layer)) {
      found.layers.emplace(node.index, std::move(*layer));
      found.taken[node.index] = node.operands.inputs[0];
    }
  }
  // All that read a converter's output, or none: it has no form outside of XNNPACK.
  for (std::size_t value = 0; value < lifetimes.size(); ++value) {
    const Lifetime& lifetime = lifetimes[value];
    if (check.facts()[value].type != xnn_datatype_qdint8 || lifetime.producer == kNoNode) {
      continue;
    }
    const std::uint32_t converted = check.nodes()[lifetime.producer].operands.inputs[0];
    const bool all = check.facts()[converted].type == xnn_datatype_fp32 &&
                     std::all_of(lifetime.consumers.begin(), lifetime.consumers.end(),
                                 [&](std::size_t consumer) { return found.layers.count(consumer) != 0; });
    if (all) {
      found.converters.insert(lifetime.producer);
    }
    for (const std::size_t consumer : lifetime.consumers) {
      if (all) {
        found.taken[consumer] = converted;
      } else {
        found.layers.erase(consumer);
      }
    }
  }
  return found;
}

bool has_form(xnn_datatype datatype) {
  return is_one_of(datatype, {xnn_datatype_fp32, xnn_datatype_fp16, xnn_datatype_qint8, xnn_datatype_quint8});
}

// Nodes before which a graph may not end: they, or nodes behind them, read what has no form outside of
// XNNPACK.
std::set<std::size_t> joined_nodes(const GraphCheck& check, const Lifetimes& lifetimes) {
  std::set<std::size_t> joined;
  for (std::size_t value = 0; value < lifetimes.size(); ++value) {
    const Lifetime& lifetime = lifetimes[value];
    if (lifetime.producer == kNoNode || has_form(check.facts()[value].type)) {
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

Split split_graph(const GraphCheck& check, HasKernel has_kernel, bool apart) {
  const Lifetimes lifetimes = lifetimes_of(check);
  const Found found = find_layers(check, lifetimes, has_kernel);
  if (found.layers.empty() && !apart) {
    return {};
  }
  Split split;
  std::map<std::size_t, std::size_t> stage_of;
  const std::set<std::size_t> joined = joined_nodes(check, lifetimes);
  split.stages = stages_of(check.nodes().size(), found, apart ? &joined : nullptr, &stage_of);
  // A layer of rows that it quantizes itself takes what its converter took.
  std::map<std::uint32_t, std::set<std::size_t>> extra;
  std::map<std::size_t, std::uint32_t> taken;  // by stages
  for (const auto& [node, layer] : found.layers) {
    extra[found.taken.at(node)].insert(stage_of.at(node));
    taken[stage_of.at(node)] = found.taken.at(node);
  }
  const std::uint32_t externals = check.externals();
  for (std::uint32_t value = 0; value < lifetimes.size(); ++value) {
    const Lifetime& lifetime = lifetimes[value];
    const GraphFact& fact = check.facts()[value];
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
    consumers.insert(extra[value].begin(), extra[value].end());
    if (fact.constant) {
      for (const std::size_t stage : consumers) {
        split.stages[stage].part.values[value] = {};
      }
      continue;
    }
    consumers.erase(producer);
    std::uint32_t external_id = fact.external_id;
    if (!fact.input && !fact.output && !consumers.empty()) {
      if (!has_form(fact.type)) {
        return {};
      }
      external_id = externals + static_cast<std::uint32_t>(split.crossings.size());
      split.crossings.push_back({fact.type, fact.declared, producer, *consumers.rbegin()});
    }
    const bool out = fact.output || !consumers.empty();
    if (producer != kNoNode && out) {
      split.probes.push_back({producer, lifetime.producer, external_id});
    }
    if (producer != kNoNode) {
      Stage& stage = split.stages[producer];
      if (stage.is_layer) {
        stage.layer.output = external_id;
      } else {
        stage.part.values[value] = out ? PartValue{XNN_VALUE_FLAG_EXTERNAL_OUTPUT, external_id} : PartValue{};
      }
    }
    for (const std::size_t consumer : consumers) {
      Stage& stage = split.stages[consumer];
      if (!stage.is_layer) {
        stage.part.values[value] = {XNN_VALUE_FLAG_EXTERNAL_INPUT, external_id};
        continue;
      }
      if (taken.at(consumer) == value) {
        stage.layer.input = external_id;
      }
      if (stage.layer.given && stage.layer.given_value == value) {
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
