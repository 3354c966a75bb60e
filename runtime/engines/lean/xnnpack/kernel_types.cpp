#include "lean/xnnpack/kernel_types.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "lean/xnnpack/xnn_delegate.h"
#include "selection.h"

namespace slipway::lean {
namespace {

// As XNNPACK writes it in the names of its kernels.
std::string short_name(xnn_datatype type) {
  const XnnType* row = find_type(type);
  return row == nullptr || row->name == nullptr ? name_of(type) : row->in_kernels;
}

bool has_weights(xnn::XNodeUnion kind) {
  return kind == xnn::XNodeUnion::XNNFullyConnected || kind == xnn::XNodeUnion::XNNConv2d ||
         kind == xnn::XNodeUnion::XNNDepthwiseConv2d || kind == xnn::XNodeUnion::XNNConvTranspose2d ||
         kind == xnn::XNodeUnion::XNNBatchMatrixMultiply;
}

// "f32", "qs8", "qd8_f32_qc8w", "f32_qc4w": with the output's type where the input's does not tell it.
std::string layer_name(xnn_datatype input, xnn_datatype weights, xnn_datatype output) {
  if (input == xnn_datatype_qdint8) {
    return short_name(input) + "_" + short_name(output) + "_" + short_name(weights);
  }
  const bool same = input == weights || (input == xnn_datatype_qint8 && weights == xnn_datatype_qcint8) ||
                    // Weights of float32 are converted when they are packed.
                    (input == xnn_datatype_fp16 && weights == xnn_datatype_fp32);
  return same ? short_name(input) : short_name(input) + "_" + short_name(weights);
}

}  // namespace

std::vector<std::string> kernel_types(const GraphCheck& check) {
  std::set<std::string> found;
  const std::vector<GraphFact>& facts = check.facts();
  for (const GraphNode& node : check.nodes()) {
    const Operands& operands = node.operands;
    const auto input = [&](std::size_t i) { return facts[operands.inputs[i]].type; };
    const bool layer = has_weights(node.node->xnode_union_type()) && operands.input_count >= 2;
    if (layer) {
      found.insert("xnnpack::" + layer_name(input(0), input(1), facts[operands.outputs[0]].type) + "_layers");
    }
    for (std::size_t i = 0; i < operands.input_count; ++i) {
      // Weights and a bias are packed, not computed with.
      if (operands.inputs[i] != kNoValue && !(layer && i >= 1)) {
        found.insert("xnnpack::" + short_name(input(i)));
      }
    }
    for (std::size_t i = 0; i < operands.output_count; ++i) {
      found.insert("xnnpack::" + short_name(facts[operands.outputs[i]].type));
    }
  }
  return {found.begin(), found.end()};
}

Result<std::vector<std::string>> kernel_types(const pte::ExecutionPlan& plan, const DataStore& store) {
  std::set<std::string> found;
  for (std::size_t i = 0; plan.delegates() != nullptr && i < plan.delegates()->size(); ++i) {
    const pte::BackendDelegate& stored = *plan.delegates()->Get(static_cast<flatbuffers::uoffset_t>(i));
    if (stored.id()->str() != kXnnpackBackend) {
      continue;
    }
    const std::string what = "Delegate " + std::to_string(i) + " of method " + plan.name()->str();
    const Result<XnnPayload> payload = XnnPayload::read(store.delegate(*stored.processed()), store, what);
    SLIPWAY_RETURN_IF_ERROR(payload);
    const Result<GraphCheck> check = GraphCheck::read(payload.value(), what);
    SLIPWAY_RETURN_IF_ERROR(check);
    for (const std::string& type : kernel_types(check.value())) {
      found.insert(type);
    }
  }
  return std::vector<std::string>(found.begin(), found.end());
}

Status check_linked(const std::vector<std::string>& types, const std::string& what) {
  const std::vector<std::string> linked = linked_kernel_types();
  std::vector<std::string> missing;
  std::set_difference(types.begin(), types.end(), linked.begin(), linked.end(), std::back_inserter(missing));
  if (linked.empty() || missing.empty()) {
    return {};
  }
  std::string list;
  for (const std::string& name : missing) {
    list += (list.empty() ? "" : ", ") + name;
  }
  return {Code::kMissingOperator, what + " needs kernels that this runner does not have: " + list + ".",
          kRebuild, missing};
}

std::vector<std::string> linked_kernel_types() {
  std::vector<std::string> found;
  for (const std::string_view name : kSelectedTypes) {
    if (!name.empty()) {
      found.emplace_back(name);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace slipway::lean
