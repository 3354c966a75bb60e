// Divides a delegate's graph between XNNPACK and layers that run on kernels it does not have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "lean/xnnpack/matrix_layer.h"
#include "lean/xnnpack/payload.h"

namespace slipway::lean {

// What a value is to a part of a graph.
struct PartValue {
  std::uint32_t flags = 0;        // XNN_VALUE_FLAG_EXTERNAL_INPUT, ..._OUTPUT or nothing
  std::uint32_t external_id = 0;  // with one of these flags: its index among the arguments
};

// Nodes that XNNPACK runs as a graph of their own.
struct GraphPart {
  std::set<std::size_t> nodes;
  std::map<std::uint32_t, PartValue> values;  // by the exporter's id; constants are in it
  std::uint32_t externals = 0;
};

// One or the other, in the order in which they run.
struct Stage {
  bool is_layer = false;
  GraphPart part;
  MatrixLayer layer;
};

// A value that one stage makes and another takes; its index among the arguments is behind the call's own.
struct Crossing {
  xnn::XNNDatatype datatype;
  std::vector<std::size_t> dims;  // as exported
  std::size_t made = 0;           // the stage that makes it
  std::size_t last = 0;           // the last one that takes it
};

// A node's result that has a form outside of XNNPACK.
struct Probe {
  std::size_t stage = 0;
  std::size_t node = 0;
  std::uint32_t external_id = 0;  // its index among the arguments
};

struct Split {
  std::vector<Stage> stages;
  std::vector<Crossing> crossings;
  std::vector<Probe> probes;
};

// `uses`: the values that each node names, by the exporter's ids. A split with no stages when no layer
// qualifies, or when what would have to be handed over has no form outside of XNNPACK.
// `has_kernel`: whether there is one for such a layer.
// `apart`: each node of XNNPACK's is a graph of its own, as far as its results have a form outside of it.
using HasKernel = bool (*)(const MatrixLayer&);
Split split_graph(const XnnPayload& payload, const std::vector<std::set<std::uint32_t>>& uses,
                  const GivenConstants& given, HasKernel has_kernel, bool apart = false);

}  // namespace slipway::lean
