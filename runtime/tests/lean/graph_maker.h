// Delegates' graphs with one node, made on the spot with the schema that the engine reads them with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lean/data/data_store.h"
#include "lean/xnnpack/payload.h"
#include "xnnpack_runtime_generated.h"

// A value of such a graph. Its id is its index among the values.
struct ValueRecipe {
  enum class Role : std::uint8_t { kInput, kConstant, kOutput };

  slipway::xnn::XNNDatatype type = slipway::xnn::XNNDatatype::xnn_datatype_fp32;
  std::vector<std::uint32_t> dims = {};
  Role role = Role::kInput;
  float scale = 0.5F;
  std::int32_t zero_point = 0;
  std::int32_t channel_dim = 0;  // of types with a scale for each channel or block
  std::int32_t block_size = 32;
  std::uint8_t content = 0x3C;  // each byte of a constant, unless these are given:
  std::vector<std::uint8_t> bytes = {};
  std::vector<float> scales = {};               // of the channels; empty: `scale` for each
  std::vector<std::uint8_t> block_scales = {};  // bfloat16; empty: as the constants are
};

// A node and its values: inputs and constants first, as the node names them, then its outputs. `parameters`
// has the node's numbers in the schema's order, ids and flags left out.
struct GraphRecipe {
  slipway::xnn::XNodeUnion kind = slipway::xnn::XNodeUnion::XNNAbs;
  std::vector<ValueRecipe> values = {};
  std::size_t outputs = 1;
  std::vector<std::uint32_t> parameters = {};
  std::vector<std::uint32_t> list = {};    // permutation, shape, offsets or paddings in front
  std::vector<std::uint32_t> second = {};  // sizes or paddings behind
  std::uint32_t flags = 0;
  // Rows quantized by themselves come from a conversion, which is put before the node: its first input is
  // what the graph is given then. Of so many last dimensions together; 0: none.
  std::int32_t quantized_by = 0;
  bool no_bias = false;
  // Inputs and outputs pass through a node that takes their sign, so that the node's own values are inside.
  bool inside = false;
  float number = 0.1F;         // of ELU and LeakyReLU
  std::vector<float> range{};  // of the result: the least and the greatest; empty: all
};

// The payload of a delegate: a flatbuffer with the constants inside.
std::vector<std::uint8_t> make_graph(const GraphRecipe& recipe);

// The store of some program, for what needs one.
const slipway::lean::DataStore& any_store();

// A payload as the engine reads it, with the bytes that it points to.
struct ReadPayload {
  explicit ReadPayload(const std::vector<std::uint8_t>& bytes);
  explicit ReadPayload(const GraphRecipe& recipe) : ReadPayload(make_graph(recipe)) {}

  std::vector<std::uint64_t> words;
  std::unique_ptr<slipway::lean::XnnPayload> payload;
};

// A sound graph of every kind.
std::vector<GraphRecipe> sound_graphs();
