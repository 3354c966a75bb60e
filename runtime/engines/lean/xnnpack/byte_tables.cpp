#include "lean/xnnpack/blocking.h"

#include <xnnpack/config.h>
#include <xnnpack/datatype.h>
#include <xnnpack/node-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstring>
#include <numeric>
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

using Results = std::vector<std::uint8_t>;

constexpr std::uint32_t kNone = XNN_INVALID_VALUE_ID;

bool is_elementwise(const xnn_node& node) {
  return node.type == xnn_node_type_unary_elementwise || node.type == xnn_node_type_binary_elementwise;
}

bool is_number(const xnn_value& value) {
  return value.data != nullptr && xnn_shape_multiply_all_dims(&value.shape) == 1;
}

xnn_quantization_params quantization_of(const xnn_value& value) {
  xnn_quantization_params params = {};
  if (is_byte(value.datatype)) {
    params.zero_point = value.quantization.zero_point;
    params.scale = value.quantization.scale;
  }
  return params;
}

// Which values follow from the bytes of one other, element by element.
class Followers {
 public:
  explicit Followers(const xnn_subgraph& subgraph)
      : nodes_(subgraph.nodes, subgraph.nodes + subgraph.num_nodes),
        values_(subgraph.values),
        all_(subgraph.num_values) {
    for (std::uint32_t id = 0; id < subgraph.num_values; ++id) {
      all_[id].readers = (values_[id].flags & XNN_VALUE_FLAG_EXTERNAL_OUTPUT) != 0 ? 1 : 0;
      if (is_byte(values_[id].datatype) && values_[id].data == nullptr) {
        all_[id].origin = id;
      }
    }
    for (xnn_node& node : nodes_) {
      std::uint32_t origin = kNone;
      bool follows = is_elementwise(node);
      for (std::uint32_t i = 0; i < node.num_inputs; ++i) {
        if (node.inputs[i] >= all_.size()) {
          continue;
        }
        Value& input = all_[node.inputs[i]];
        ++input.readers;
        if (!is_number(values_[node.inputs[i]])) {
          follows = follows && input.origin != kNone && (origin == kNone || origin == input.origin);
          origin = input.origin;
        }
      }
      if (follows && origin != kNone) {
        all_[node.outputs[0]].origin = origin;
        all_[node.outputs[0]].maker = &node;
      }
      unary_ = node.type == xnn_node_type_unary_elementwise ? &node : unary_;
    }
  }

  // Lets a node read the bytes that its result follows from, and nothing else, if those are of the same kind
  // and a node less is needed then. The results, for each byte; empty where all stays as it is.
  Results join(xnn_node* node) {
    const std::uint32_t output = node->outputs[0];
    const std::uint32_t origin = is_elementwise(*node) ? all_[output].origin : kNone;
    if (origin == kNone || origin == output || unary_ == nullptr ||
        values_[origin].datatype != values_[output].datatype ||
        values_[origin].shape.num_dims != values_[output].shape.num_dims) {
      return {};
    }
    const auto is_spared = [&](std::uint32_t input) {
      return input != origin && all_[input].maker != nullptr && all_[input].readers == 1;
    };
    if (std::none_of(node->inputs, node->inputs + node->num_inputs, is_spared)) {
      return {};
    }
    Results found = results(output);
    if (!found.empty()) {
      ++all_[origin].readers;
      forget(*node);
      xnn_node joined = *unary_;
      joined.unary_operator = kByTable;
      joined.params.unary = {};
      joined.inputs[0] = origin;
      joined.outputs[0] = output;
      joined.flags = node->flags;
      *node = joined;
    }
    return found;
  }

  // Of all elements, for each byte of what they follow from; empty where XNNPACK cannot compute them.
  const Results& results(std::uint32_t id) {
    Value& value = all_[id];
    if (value.results.empty() && value.maker == nullptr) {
      value.results.resize(kBytes + XNN_EXTRA_BYTES);
      std::iota(value.results.begin(), value.results.begin() + kBytes, std::uint8_t{0});
      if (values_[id].data != nullptr) {
        std::memcpy(value.results.data(), values_[id].data, xnn_datatype_size_bytes(values_[id].datatype));
      }
    } else if (value.results.empty()) {
      Results made(kBytes * sizeof(float) + XNN_EXTRA_BYTES);
      if (run(*value.maker, made.data()) == xnn_status_success) {
        value.results = std::move(made);
      }
    }
    return value.results;
  }

  bool is_read(std::uint32_t id) const { return all_[id].readers != 0; }
  std::vector<xnn_node>& nodes() { return nodes_; }

 private:
  struct Value {
    std::uint32_t origin = kNone;
    xnn_node* maker = nullptr;
    std::uint32_t readers = 0;
    Results results;
  };

  // That the node reads its inputs no longer; and what made these, if nothing else does.
  void forget(const xnn_node& node) {
    for (std::uint32_t i = 0; i < node.num_inputs; ++i) {
      Value& input = all_[node.inputs[i]];
      if (--input.readers == 0 && input.maker != nullptr) {
        forget(*input.maker);
      }
    }
  }

  xnn_status run(const xnn_node& node, void* to) {
    const void* from[2] = {};
    std::size_t sizes[2] = {kBytes, kBytes};
    xnn_quantization_params given[2] = {};
    for (std::uint32_t i = 0; i < node.num_inputs; ++i) {
      const xnn_value& input = values_[node.inputs[i]];
      const Results& known = results(node.inputs[i]);
      if (known.empty()) {
        return xnn_status_unsupported_parameter;
      }
      from[i] = known.data();
      sizes[i] = is_number(input) ? 1 : kBytes;
      given[i] = quantization_of(input);
    }
    const xnn_value& output = values_[node.outputs[0]];
    const xnn_quantization_params made = quantization_of(output);
    return node.type == xnn_node_type_unary_elementwise
               ? xnn_run_unary_elementwise_nc(node.unary_operator, values_[node.inputs[0]].datatype,
                                              output.datatype, &node.params.unary, &given[0], &made, 0,
                                              kBytes, 1, 1, 1, nullptr, from[0], to)
               : xnn_run_binary_elementwise_nd(node.binary_operator, output.datatype, &given[0], &given[1],
                                               &made, 0, 1, &sizes[0], 1, &sizes[1], from[0], from[1], to,
                                               nullptr);
  }

  std::vector<xnn_node> nodes_;
  const xnn_node* unary_ = nullptr;  // any one
  const xnn_value* values_;
  std::vector<Value> all_;
};

}  // namespace

ByteTables::ByteTables(xnn_subgraph_t subgraph) {
  // A build for some programs may be without what looks results up.
  if (xnn_init_x8_lut_config() == nullptr) {
    return;
  }
  Followers followers(*subgraph);
  std::vector<Results> found;
  for (xnn_node& node : followers.nodes()) {
    found.push_back(followers.join(&node));
  }
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < found.size(); ++i) {
    const xnn_node& node = followers.nodes()[i];
    if (is_elementwise(node) && !followers.is_read(node.outputs[0])) {
      // As XNNPACK does with values that it needs no more.
      subgraph->values[node.outputs[0]] = {};
      continue;
    }
    subgraph->nodes[count] = node;
    subgraph->nodes[count].id = count;
    if (!found[i].empty()) {
      std::copy_n(found[i].begin(), kBytes, tables_[count].begin());
    }
    ++count;
  }
  subgraph->num_nodes = count;
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
