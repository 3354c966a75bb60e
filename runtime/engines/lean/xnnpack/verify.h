// Whether a delegate's graph is sound, and whether given shapes are ones that it can compute with: XNNPACK
// believes both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lean/data/evalue.h"
#include "lean/xnnpack/payload.h"
#include "lean/xnnpack/rules.h"
#include "slipway/status.h"

namespace slipway::lean {

// A checked graph. It is cheap to ask again for the shapes that it has seen last.
class GraphCheck {
 public:
  // Checks all that does not depend on the shapes of a call: ids, types, quantization, parameters, constants'
  // sizes, the order of nodes; then that the declared shapes follow from one another, or are bounds of what
  // follows. The payload must outlive the check. kFile, or kMissingOperator for a type or kind of node that
  // this XNNPACK lacks.
  static Result<GraphCheck> read(const XnnPayload& payload, std::string what);

  // The arguments of a call, in the order of external ids, before anything is done with them: how many, their
  // types and ranks, and that the graph can compute with their shapes and has room for its results. kFile
  // when they cannot be this graph's; kExecution when their shapes do not go through it; kMemory when what it
  // needs for them is more than there is.
  Status accept(const std::vector<TensorView*>& arguments);

  // Whether the graph produces that argument.
  bool produces(std::size_t argument) const {
    return argument < externals_.size() && externals_[argument] != kNoValue &&
           facts_[externals_[argument]].output;
  }

  // The shape of an external value, as it follows from the arguments accepted last.
  const Dims& shape_of(std::uint32_t external_id) const { return shapes_[externals_[external_id]]; }

  // All values by the exporter's ids, and the shapes they have now; for tests.
  const std::vector<GraphFact>& facts() const { return facts_; }
  const std::vector<Dims>& shapes() const { return shapes_; }
  // In the order of the file; their operands are indices of facts().
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  // Bytes that intermediate values take at once, at the least, with these shapes.
  std::size_t peak() const { return peak_; }

 private:
  explicit GraphCheck(std::string what) : what_(std::move(what)) {}

  Status fault(const std::string& text) const;
  Status read_values(const XnnPayload& payload);
  Status read_nodes(const xnn::XNNGraph& graph);
  Status resolve(const xnn::XNode& node, Operands* operands) const;
  Status order(const GraphNode& node, std::vector<std::uint8_t>* known);
  Status compare_declared();
  Fault follow();
  bool seen(const std::vector<TensorView*>& arguments) const;
  Status take_input(const TensorView* view, std::uint32_t external_id);
  Status take_output(const TensorView* view, std::uint32_t external_id) const;
  std::uint32_t find(std::uint32_t id) const;

  std::string what_;
  std::vector<GraphFact> facts_;
  std::vector<std::uint32_t> by_id_;      // indices of facts; kNoValue: none
  std::vector<std::uint32_t> externals_;  // the same, by external ids
  std::vector<GraphNode> nodes_;
  std::vector<std::size_t> last_use_;  // of each fact: a node's index; SIZE_MAX: it is no intermediate value
  std::vector<Dims> shapes_;
  // Which value is declared larger than it is, and so has to be dynamic: what is declared is then a bound.
  Fault loose_;
  std::size_t peak_ = 0;
  std::size_t had_ = 0;  // the largest peak that there was room for
  bool accepted_ = false;
};

// What the schema says of a value. `text`: what is wrong with it. False for a type that this XNNPACK lacks.
bool read_fact(const xnn::XValue& value, const XnnPayload& payload, GraphFact* fact, Fault* text);

}  // namespace slipway::lean
