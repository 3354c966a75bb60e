#include "lean/xnnpack/blocking.h"

#include <xnnpack/config.h>
#include <xnnpack/node-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace slipway::lean {
namespace {

constexpr std::size_t kBytes = 256;
// XNNPACK has no kernel for it in 8 bits, and makes a table for what it has no kernels for.
constexpr xnn_unary_operator kByTable = xnn_unary_abs;

bool is_byte(xnn_datatype datatype) {
  return datatype == xnn_datatype_qint8 || datatype == xnn_datatype_quint8;
}

bool is_floating(xnn_datatype datatype) {
  return datatype == xnn_datatype_fp32 || datatype == xnn_datatype_fp16;
}

class ChainSearch {
 public:
  explicit ChainSearch(const xnn_subgraph& subgraph)
      : subgraph_(subgraph), readers_(subgraph.num_values), reader_(subgraph.num_values) {
    for (std::uint32_t i = 0; i < subgraph.num_nodes; ++i) {
      const xnn_node& node = subgraph.nodes[i];
      for (std::uint32_t input = 0; input < node.num_inputs; ++input) {
        if (node.inputs[input] < subgraph.num_values) {
          ++readers_[node.inputs[input]];
          reader_[node.inputs[input]] = i;
        }
      }
    }
  }

  // That begins at the node; empty when none does.
  std::vector<std::uint32_t> from(std::uint32_t first) const {
    std::vector<std::uint32_t> chain;
    if (!is_unary(first) || !is_byte(input_of(first).datatype)) {
      return chain;
    }
    for (std::uint32_t at = first;;) {
      chain.push_back(at);
      const xnn_value& result = subgraph_.values[subgraph_.nodes[at].outputs[0]];
      if (result.datatype == input_of(first).datatype) {
        return chain.size() > 1 ? chain : std::vector<std::uint32_t>();
      }
      const bool outside =
          (result.flags & (XNN_VALUE_FLAG_EXTERNAL_INPUT | XNN_VALUE_FLAG_EXTERNAL_OUTPUT)) != 0;
      if (!is_floating(result.datatype) || outside || readers_[result.id] != 1 ||
          !is_unary(reader_[result.id])) {
        return {};
      }
      at = reader_[result.id];
    }
  }

 private:
  bool is_unary(std::uint32_t node) const {
    return subgraph_.nodes[node].type == xnn_node_type_unary_elementwise;
  }
  const xnn_value& input_of(std::uint32_t node) const {
    return subgraph_.values[subgraph_.nodes[node].inputs[0]];
  }

  const xnn_subgraph& subgraph_;
  std::vector<std::uint32_t> readers_;  // of each value: how many
  std::vector<std::uint32_t> reader_;   // and one of them
};

xnn_quantization_params quantization_of(const xnn_value& value) {
  xnn_quantization_params params = {};
  if (is_byte(value.datatype)) {
    params.zero_point = value.quantization.zero_point;
    params.scale = value.quantization.scale;
  }
  return params;
}

// Whether the chain's results were computed, for each byte.
bool compute(const xnn_subgraph& subgraph, const std::vector<std::uint32_t>& chain, std::uint8_t* results) {
  std::vector<std::uint8_t> from(kBytes * sizeof(float) + XNN_EXTRA_BYTES);
  std::vector<std::uint8_t> to(from.size());
  for (std::size_t i = 0; i < kBytes; ++i) {
    from[i] = static_cast<std::uint8_t>(i);
  }
  for (const std::uint32_t at : chain) {
    const xnn_node& node = subgraph.nodes[at];
    const xnn_value& input = subgraph.values[node.inputs[0]];
    const xnn_value& output = subgraph.values[node.outputs[0]];
    const xnn_quantization_params before = quantization_of(input);
    const xnn_quantization_params after = quantization_of(output);
    if (xnn_run_unary_elementwise_nc(node.unary_operator, input.datatype, output.datatype, &node.params.unary,
                                     &before, &after, 0, kBytes, 1, 1, 1, nullptr, from.data(),
                                     to.data()) != xnn_status_success) {
      return false;
    }
    std::swap(from, to);
  }
  std::copy_n(from.data(), kBytes, results);
  return true;
}

}  // namespace

ByteTables::ByteTables(xnn_subgraph_t subgraph) {
  // A build for some programs may be without what looks results up.
  if (xnn_init_x8_lut_config() == nullptr) {
    return;
  }
  const ChainSearch search(*subgraph);
  std::vector<bool> stays(subgraph->num_nodes, true);
  std::vector<std::pair<std::uint32_t, Table>> found;  // by the chain's last node
  for (std::uint32_t i = 0; i < subgraph->num_nodes; ++i) {
    const std::vector<std::uint32_t> chain = search.from(i);
    Table table;
    if (chain.empty() || !compute(*subgraph, chain, table.data())) {
      continue;
    }
    xnn_node& last = subgraph->nodes[chain.back()];
    last.inputs[0] = subgraph->nodes[i].inputs[0];
    last.unary_operator = kByTable;
    last.params.unary = {};
    for (std::size_t node = 0; node + 1 < chain.size(); ++node) {
      // As XNNPACK does with values that it needs no more.
      subgraph->values[subgraph->nodes[chain[node]].outputs[0]] = {};
      stays[chain[node]] = false;
    }
    found.emplace_back(chain.back(), table);
  }
  std::vector<std::uint32_t> numbers(subgraph->num_nodes);
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < subgraph->num_nodes; ++i) {
    numbers[i] = count;
    if (stays[i]) {
      subgraph->nodes[count] = subgraph->nodes[i];
      subgraph->nodes[count].id = count;
      ++count;
    }
  }
  subgraph->num_nodes = count;
  for (const auto& [node, table] : found) {
    tables_.emplace(numbers[node], table);
  }
}

xnn_status ByteTables::install(xnn_runtime_t runtime) const {
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    const xnn_operator_data& data = runtime->opdata[i];
    const auto found = tables_.find(data.id);
    if (data.operator_objects[0] == nullptr || found == tables_.end()) {
      continue;
    }
    if (data.operator_objects[0]->lookup_table == nullptr) {
      return xnn_status_unsupported_parameter;
    }
    std::memcpy(data.operator_objects[0]->lookup_table, found->second.data(), kBytes);
  }
  return xnn_status_success;
}

}  // namespace slipway::lean
