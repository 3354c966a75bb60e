#include "lean/xnnpack/rules.h"

#include <algorithm>
#include <utility>

#include "program_file.h"

namespace slipway::lean {
namespace {

// Of inputs and outputs together: XNNPACK takes memory for each, some 200 bytes. Graphs have tens.
constexpr std::uint32_t kMostExternals = 1U << 16U;

// Of the same rank, and no size is larger.
bool at_most(const Dims& one, const Dims& bound) {
  bool fits = one.rank == bound.rank;
  for (std::size_t i = 0; fits && i < one.rank; ++i) {
    fits = one[i] <= bound[i];
  }
  return fits;
}

// An image's shape with its channels behind the rest, where XNNPACK has them; PyTorch has them before. Other
// ranks stay.
Dims channels_last(const Dims& dims) {
  Dims turned = dims;
  if (dims.rank == 4) {
    std::rotate(turned.size.begin() + 1, turned.size.begin() + 2, turned.size.begin() + 4);
  }
  return turned;
}

std::string name_of(const GraphFact& fact) {
  return "value " + std::to_string(fact.id);
}

std::string name_of(const GraphNode& node) {
  return "its node " + std::to_string(node.node->debug_handle()) + ", " +
         xnn::EnumNameXNodeUnion(node.node->xnode_union_type());
}

}  // namespace

Status GraphCheck::fault(const std::string& text) const {
  return {Code::kFile, what_ + ": " + text + ".", kCopyAgain};
}

Result<GraphCheck> GraphCheck::read(const XnnPayload& payload, std::string what) {
  GraphCheck check(std::move(what));
  const xnn::XNNGraph& graph = payload.graph();
  if (graph.xvalues() == nullptr || graph.xnodes() == nullptr) {
    return check.fault("its graph has no values or no nodes");
  }
  // A call may bring arguments that no node reads: there can be more of them than values.
  check.most_externals_ = graph.num_externs();
  if (check.most_externals_ > kMostExternals) {
    return check.fault("it says it has " + std::to_string(check.most_externals_) + " inputs and outputs");
  }
  SLIPWAY_RETURN_IF_ERROR(check.read_values(payload));
  SLIPWAY_RETURN_IF_ERROR(check.read_nodes(graph));
  check.find_pixel_layers();
  const Fault wrong = check.follow();
  if (!wrong.empty()) {
    return check.fault(wrong);
  }
  SLIPWAY_RETURN_IF_ERROR(check.compare_declared());
  return check;
}

Status GraphCheck::read_values(const XnnPayload& payload) {
  const auto& values = *payload.graph().xvalues();
  facts_.resize(values.size());
  // Exporters count from 0; a graph with gaps is read, too, as long as they are not wide.
  by_id_.assign(2 * std::size_t{values.size()} + 64, kNoValue);
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    GraphFact& fact = facts_[i];
    Fault wrong;
    if (!read_fact(*values.Get(i), payload, &fact, &wrong)) {
      return {Code::kMissingOperator,
              what_ + ": " + name_of(fact) + " is of a type that this XNNPACK does not have (" + wrong + ").",
              "export the model with another quantization scheme (./inv models)",
              {wrong}};
    }
    if (!wrong.empty()) {
      return fault(name_of(fact) + ": " + wrong);
    }
    if (fact.id >= by_id_.size() || by_id_[fact.id] != kNoValue) {
      return fault(name_of(fact) + " is there twice, or its number is too large for " +
                   std::to_string(values.size()) + " values");
    }
    by_id_[fact.id] = i;
    if (!fact.input && !fact.output) {
      continue;
    }
    const std::uint32_t argument = fact.external_id;
    if (argument >= most_externals_ || argument >= by_id_.size()) {
      return fault(name_of(fact) + " is input or output " + std::to_string(argument) + " beyond the " +
                   std::to_string(most_externals_) + " that it says it has");
    }
    if (argument >= externals_.size()) {
      externals_.resize(argument + 1, kNoValue);
    }
    if (externals_[argument] != kNoValue) {
      return fault(name_of(fact) + " and " + name_of(facts_[externals_[argument]]) +
                   " are the same input or output, " + std::to_string(argument));
    }
    externals_[argument] = i;
  }
  return {};
}

Status GraphCheck::misfit(const GraphNode& node, const std::string& text) const {
  return fault(name_of(node) + ", does not fit the values it names: " + text);
}

// The node's ids become indices into the list of facts.
Status GraphCheck::resolve(GraphNode* node) const {
  Operands& operands = node->operands;
  const bool may_have_bias = is_layer(node->node->xnode_union_type());
  for (std::size_t i = 0; i < operands.input_count + operands.output_count; ++i) {
    const bool input = i < operands.input_count;
    std::uint32_t& id = input ? operands.inputs[i] : operands.outputs[i - operands.input_count];
    const std::uint32_t index = id < by_id_.size() ? by_id_[id] : kNoValue;
    if (index == kNoValue && !(input && may_have_bias && i == 2 && id == XNN_INVALID_VALUE_ID)) {
      return misfit(*node, "there is no value " + std::to_string(id));
    }
    id = index;
  }
  return {};
}

// Each value has one writer, which comes before its readers.
Status GraphCheck::order(const GraphNode& node, std::vector<std::uint8_t>* known) {
  const Operands& operands = node.operands;
  for (std::size_t i = 0; i < operands.input_count; ++i) {
    const std::uint32_t index = operands.inputs[i];
    if (index == kNoValue) {
      continue;
    }
    if ((*known)[index] == 0) {
      return misfit(node, name_of(facts_[index]) + " is read before a node makes it");
    }
    last_use_[index] = node.index;
  }
  for (std::size_t i = 0; i < operands.output_count; ++i) {
    const std::uint32_t index = operands.outputs[i];
    if ((*known)[index] != 0) {
      return misfit(node, name_of(facts_[index]) + " is there before the node makes it");
    }
    (*known)[index] = 1;
  }
  return {};
}

Status GraphCheck::read_nodes(const xnn::XNNGraph& graph) {
  std::vector<std::uint8_t> known;
  for (const GraphFact& fact : facts_) {
    known.push_back(fact.constant || fact.input ? 1 : 0);
  }
  last_use_.assign(facts_.size(), SIZE_MAX);
  nodes_.reserve(graph.xnodes()->size());
  for (const xnn::XNode* node : *graph.xnodes()) {
    const NodeRule* rule = rule_of(node->xnode_union_type());
    if (rule == nullptr || node->xnode_union() == nullptr) {
      const std::string kind = xnn::EnumNameXNodeUnion(node->xnode_union_type());
      return {Code::kMissingOperator,
              what_ + ": this XNNPACK cannot do the node " + kind + " (no node of this schema).",
              "leave the operator outside the delegate, or export with another quantization scheme",
              {kind}};
    }
    nodes_.push_back({node, nodes_.size(), rule->operands(*node)});
    SLIPWAY_RETURN_IF_ERROR(resolve(&nodes_.back()));
    SLIPWAY_RETURN_IF_ERROR(order(nodes_.back(), &known));
  }
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    if (facts_[i].output && known[i] == 0) {
      return fault(name_of(facts_[i]) + " is an output that no node makes");
    }
  }
  // XNNPACK ends the process where a node's result is used by a node whose own results are not.
  for (const GraphNode& node : nodes_) {
    for (std::size_t i = 0; i < node.operands.output_count; ++i) {
      const std::uint32_t index = node.operands.outputs[i];
      if (!facts_[index].output && last_use_[index] == SIZE_MAX) {
        return fault("a node's results are used nowhere: " + name_of(facts_[index]) + " of " + name_of(node));
      }
    }
  }
  for (const GraphFact& fact : facts_) {
    shapes_.push_back(fact.declared);
  }
  return {};
}

void GraphCheck::find_pixel_layers() {
  const auto is_pixel_layer = [](const GraphNode& node) {
    const auto* layer = node.node->xnode_union_as_XNNConv2d();
    return layer != nullptr && every_pixel(window_down(*layer)) && every_pixel(window_across(*layer)) &&
           layer->groups() == 1;
  };
  // What another node reads, too, stays as it was exported.
  for (const bool is_pixels : {true, false}) {
    for (const GraphNode& node : nodes_) {
      GraphFact& input = facts_[node.operands.inputs[0]];
      if (is_pixel_layer(node) == is_pixels) {
        input.by_pixels = is_pixels && input.type == xnn_datatype_qdint8 && input.declared.rank == 4 &&
                          input.nonbatch_dims == 3;
      }
    }
  }
}

// All shapes from those of inputs and constants, and what intermediate values take at once.
Fault GraphCheck::follow() {
  std::size_t live = 0;
  const auto bytes_of = [&](std::uint32_t index) {
    std::size_t bytes = 0;
    const GraphFact& fact = facts_[index];
    // XNNPACK has float32 instead of bfloat16, in memory of its own.
    const bool widened = fact.type == xnn_datatype_bf16;
    const bool own = !fact.constant && ((!fact.input && !fact.output) || widened);
    return own && count_bytes(shapes_[index], widened ? xnn_datatype_fp32 : fact.type, &bytes) ? bytes : 0;
  };
  for (std::size_t index = 0; index < facts_.size(); ++index) {
    const std::size_t given = facts_[index].input ? bytes_of(static_cast<std::uint32_t>(index)) : 0;
    if (given > kMostBytes - live) {
      return "its inputs are too large for any memory";
    }
    live += given;
  }
  peak_ = live;
  for (const GraphNode& node : nodes_) {
    NodeCheck check(node, facts_, &shapes_);
    const Fault wrong = check.run(*rule_of(node.node->xnode_union_type()));
    if (!wrong.empty()) {
      return name_of(node) + ", does not fit the values it names: " + wrong;
    }
    std::size_t made = check.scratch();
    for (std::size_t i = 0; i < node.operands.output_count; ++i) {
      made += bytes_of(node.operands.outputs[i]);
    }
    std::size_t gone = 0;
    for (std::size_t i = 0; i < node.operands.input_count; ++i) {
      const std::uint32_t index = node.operands.inputs[i];
      // A value that the node names twice ends once.
      const auto before = node.operands.inputs.begin() + static_cast<std::ptrdiff_t>(i);
      if (index != kNoValue && last_use_[index] == node.index && !facts_[index].input &&
          std::find(node.operands.inputs.begin(), before, index) == before) {
        gone += bytes_of(index);
      }
    }
    // A result may take the memory of what ends with the node.
    const std::size_t besides = made > gone ? made - gone : 0;
    if (besides > kMostBytes - live) {
      return name_of(node) + ": its values are too large for any memory";
    }
    peak_ = std::max(peak_, live + besides);
    live = live + made - check.scratch() - gone;
  }
  return {};
}

Status GraphCheck::compare_declared() {
  for (const GraphNode& node : nodes_) {
    for (std::size_t i = 0; i < node.operands.output_count; ++i) {
      const std::uint32_t index = node.operands.outputs[i];
      const GraphFact& fact = facts_[index];
      const Dims& made = shapes_[index];
      // Exporters leave the quantized value of a convolution with the shape that PyTorch gives it, and others
      // whose two transpositions they took together.
      const Dims turned = channels_last(fact.declared);
      std::size_t declared = 0;
      std::size_t found = 0;
      const bool counted = fact.type == xnn_datatype_qdint8;
      const bool countable = count_all(fact.declared, &declared) && count_all(made, &found);
      if (counted ? countable && declared == found : fact.declared == made || turned == made) {
        continue;
      }
      Fault wrong = name_of(fact) + " is declared as " + shape_text(fact.declared) + ", and " +
                    name_of(node) + ", gives " + shape_text(made);
      // The bound of an expression of dynamic sizes may be larger than what the bounds of its parts give.
      if (!(counted ? countable && declared > found
                    : at_most(made, fact.declared) || at_most(made, turned))) {
        return fault(wrong);
      }
      loose_ = loose_.empty() ? std::move(wrong) : loose_;
    }
  }
  return {};
}

}  // namespace slipway::lean
