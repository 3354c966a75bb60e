// From an exported graph to a subgraph of XNNPACK's.
#pragma once

#include <xnnpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lean/xnnpack/matrix_layer.h"
#include "lean/xnnpack/rules.h"
#include "selection.h"
#include "slipway/status.h"

namespace slipway::lean {

// Ends with XNNPACK's function for it.
template <auto kDelete>
struct XnnDeleter {
  template <typename Made>
  void operator()(Made* made) const {
    if constexpr (kHasXnnpack) {  // else the linker would keep XNNPACK for this call
      kDelete(made);
    }
  }
};

// A value that the program gives to the graph or takes from it.
struct External {
  std::uint32_t id = 0;  // also its index among the delegate call's arguments
  bool output = false;
  xnn_datatype datatype = xnn_datatype_invalid;
  std::size_t rank = 0;
  bool widened = false;  // bfloat16 outside, float32 for XNNPACK
};

// A graph in the making: the values of a checked graph lead to XNNPACK's.
class GraphBuilder {
 public:
  // `part`: only these nodes; nullptr for all. It and the check must outlive the builder. `widen`: what is
  // float16 is computed in float32; inputs and outputs stay what they are, and are converted by nodes of the
  // graph. What is bfloat16 is float32 for XNNPACK, which computes nothing in it and has no such converters:
  // who runs the graph converts inputs and outputs.
  GraphBuilder(const GraphCheck& check, std::string what, const GraphPart* part = nullptr,
               bool widen = false);

  // Defines all values, then all nodes. A node or a type that this XNNPACK cannot do is refused by its name
  // (kMissingOperator).
  Status build();

  xnn_subgraph_t subgraph() const { return subgraph_.get(); }
  // When a runtime is made of it. The constants that were widened stay: the runtime reads them.
  void forget_subgraph() { subgraph_.reset(); }
  const std::vector<External>& externals() const { return externals_; }
  bool has_halves() const { return has_halves_; }
  bool widened() const { return widen_; }

  // For the functions that define nodes (nodes.cpp), of a value by its index: what it is, XNNPACK's id of it,
  // and its type for XNNPACK. kNoValue has no id.
  const GraphFact& fact(std::uint32_t value) const { return check_.facts()[value]; }
  std::uint32_t id_of(std::uint32_t value) const;
  xnn_datatype type_of(std::uint32_t value) const;
  // Whether the value is only the activation of fully-connected nodes whose weights have that type.
  bool feeds_only(std::uint32_t value, xnn_datatype weights) const;

 private:
  Status define_value(std::uint32_t value);
  xnn_status define_plain(const GraphFact& fact, const PartValue& part_value, std::uint32_t* id);
  xnn_status define_widened(const GraphFact& fact, const PartValue& part_value, std::uint32_t* id);
  xnn_status convert(std::uint32_t from, std::uint32_t to);
  Status define_node(const GraphNode& node);
  Status fault(const std::string& text) const;

  const GraphCheck& check_;
  std::string what_;
  const GraphPart* part_;
  bool widen_;
  bool has_halves_ = false;
  std::unique_ptr<xnn_subgraph, XnnDeleter<xnn_delete_subgraph>> subgraph_;
  std::vector<std::uint32_t> ids_;  // XNNPACK's, by the values' indices
  std::vector<External> externals_;
  std::vector<std::vector<float>> widened_;                        // XNNPACK keeps pointers to constants
  std::vector<std::pair<std::uint32_t, std::uint32_t>> narrowed_;  // float32 results and the float16 outputs
};

// XNNPACK's name of an outcome: "unsupported parameter".
const char* name_of(xnn_status status);

// Defines one node.
xnn_status define_xnn_node(const GraphBuilder& graph, const GraphNode& node);

}  // namespace slipway::lean
