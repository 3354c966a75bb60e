// From an exported graph to a subgraph of XNNPACK's.
#pragma once

#include <xnnpack.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lean/xnnpack/matrix_layer.h"
#include "lean/xnnpack/payload.h"
#include "selection.h"
#include "slipway/status.h"

namespace slipway::lean {

struct SubgraphDeleter {
  void operator()(xnn_subgraph_t subgraph) const {
    if (kHasXnnpack) {  // else the linker would keep XNNPACK for this call
      xnn_delete_subgraph(subgraph);
    }
  }
};
using Subgraph = std::unique_ptr<xnn_subgraph, SubgraphDeleter>;

// A value that the program gives to the graph or takes from it.
struct External {
  std::uint32_t id = 0;  // also its index among the delegate call's arguments
  bool output = false;
  xnn_datatype datatype = xnn_datatype_invalid;
  std::size_t rank = 0;
  bool widened = false;  // bfloat16 outside, float32 for XNNPACK
};

// What a value of the graph is, as far as nodes ask.
struct GraphValue {
  std::uint32_t id = XNN_INVALID_VALUE_ID;  // XNNPACK's
  xnn_datatype datatype = xnn_datatype_invalid;
  std::vector<std::size_t> dims;
  bool constant = false;
};

// A graph in the making: the exporter's value ids lead to XNNPACK's.
class GraphBuilder {
 public:
  // Of a graph that was checked (GraphCheck). `part`: only these nodes; nullptr for all. It must outlive the
  // builder. `widen`: what is float16 is computed in float32; inputs and outputs stay what they are, and are
  // converted by nodes of the graph. What is bfloat16 is float32 for XNNPACK, which computes nothing in it
  // and has no such converters: who runs the graph converts inputs and outputs.
  GraphBuilder(const XnnPayload& payload, std::string what, const GraphPart* part = nullptr,
               bool widen = false);

  // Defines all values, then all nodes. A node or a type that this XNNPACK cannot do is refused by its name
  // (kMissingOperator).
  Status build();

  xnn_subgraph_t subgraph() const { return subgraph_.get(); }
  const std::vector<External>& externals() const { return externals_; }
  bool has_halves() const { return has_halves_; }
  bool widened() const { return widen_; }
  // The values that each node names, by the exporter's ids.
  const std::vector<std::set<std::uint32_t>>& uses() const { return uses_; }

  // For the functions that define nodes (nodes.cpp): a value that the node names.
  const GraphValue& at(std::uint32_t exported_id) const;
  const PixelLayers& pixel_layers() const { return payload_.pixel_layers(); }
  // Whether the value is only the activation of fully-connected nodes whose weights have that type.
  bool feeds_only(std::uint32_t exported_id, xnn_datatype weights) const;

 private:
  Status define_value(const xnn::XValue& value);
  // The value's flags in this graph, and its index among the arguments (XNN_INVALID_VALUE_ID: none).
  PartValue part_value_of(const xnn::XNNTensorValue& value) const;
  Status define_plain(const xnn::XNNTensorValue& value);
  Status define_quantized(const xnn::XNNQuantizedTensorValue& value);
  Status define_widened(const xnn::XNNTensorValue& value, const void* data);
  xnn_status convert(std::uint32_t from, std::uint32_t to);
  Status define_node(const xnn::XNode& node);
  const void* constant_of(const xnn::XNNTensorValue& value) const;
  Status fault(const std::string& text) const;
  Status remember(const xnn::XNNTensorValue& value, xnn_status status, std::uint32_t id);
  std::vector<float> scales_of(const xnn::PerChannelQuant& quant) const;

  const XnnPayload& payload_;
  std::string what_;
  const GraphPart* part_;
  bool widen_;
  bool has_halves_ = false;
  mutable std::vector<std::set<std::uint32_t>> uses_;
  Subgraph subgraph_;
  std::unordered_map<std::uint32_t, GraphValue> values_;
  std::vector<External> externals_;
  // XNNPACK keeps pointers to per-channel scales, and to constants.
  std::vector<std::vector<float>> scales_;
  std::vector<std::vector<float>> widened_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> narrowed_;  // float32 results and the float16 outputs
};

// XNNPACK's name of an outcome: "unsupported parameter".
const char* name_of(xnn_status status);
// XNNPACK's type for the exporter's, whose numbers differ; invalid for one that this XNNPACK lacks.
xnn_datatype to_xnn(xnn::XNNDatatype datatype);

// Defines one node.
xnn_status define_xnn_node(const GraphBuilder& graph, const xnn::XNode& node);

}  // namespace slipway::lean
