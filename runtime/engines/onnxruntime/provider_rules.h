// What the XNNPACK provider takes, by its documentation:
// https://onnxruntime.ai/docs/execution-providers/Xnnpack-ExecutionProvider.html#supported-ops
#pragma once

#include <string>
#include <vector>

#include "graph.h"
#include "provider_faults.h"

namespace slipway::onnx {

constexpr char kXnnpack[] = "XnnpackExecutionProvider";
constexpr char kCpu[] = "CPUExecutionProvider";

// Why the documented limits keep the XNNPACK provider from this node; empty when they do not.
std::string why_not_xnnpack(const Graph& graph, const Node& node);

// Whether the operator is of those that take most of a model's time wherever they occur.
bool is_compute_heavy(const std::string& full_op);

// Where the nodes will run, as far as the documentation tells. ONNX Runtime decides on the optimized graph,
// where nodes are fused and folded, so this is an expectation; the result of a run says what became of it.
std::vector<NodeInfo> expected_placement(const Graph& graph, const Guard& guard = {});

}  // namespace slipway::onnx
