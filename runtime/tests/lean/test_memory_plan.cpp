// Places of values in one block of memory, and the block.
#include <xnnpack/common.h>
#include <xnnpack/node-type.h>
#include <xnnpack/subgraph.h>

#include <random>

#include "check.h"
#include "lean/xnnpack/memory_plan.h"

using namespace slipway::lean;

namespace {

std::vector<Life> any_lives(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  const std::size_t steps = 1 + below(60);
  std::vector<Life> lives(1 + below(80));
  for (Life& life : lives) {
    life.first = below(steps);
    // Most values are read soon, and some are kept for long.
    const std::size_t reach = below(5) == 0 ? steps : 3;
    life.last = std::min(steps - 1, life.first + below(reach));
    life.size = 64 * below(below(4) == 0 ? 400 : 20);
  }
  return lives;
}

// Whether all lie within the block, and those that are there at once apart.
bool apart(const std::vector<Life>& lives, const Places& places) {
  for (std::size_t i = 0; i < lives.size(); ++i) {
    const std::size_t end = places.offsets[i] + lives[i].size;
    if (end > places.size) {
      return false;
    }
    for (std::size_t j = 0; j < i; ++j) {
      const bool share = lives[i].size != 0 && lives[j].size != 0 && places.offsets[j] < end &&
                         places.offsets[i] < places.offsets[j] + lives[j].size;
      if (share && lives[i].first <= lives[j].last && lives[j].first <= lives[i].last) {
        return false;
      }
    }
  }
  return true;
}

struct Step {
  xnn_node_type type;
  std::vector<std::uint32_t> inputs;
  std::uint32_t output;
};

constexpr auto kConv = xnn_node_type_convolution_2d;
constexpr auto kUnary = xnn_node_type_unary_elementwise;
constexpr auto kBinary = xnn_node_type_binary_elementwise;

// A graph as XNNPACK prepares it, of values in float32 with one dimension.
struct PlannedGraph {
  std::vector<xnn_value> values;
  std::vector<xnn_operator_data> operators;
  xnn_runtime runtime = {};
  WorkMemory memory;
  MemoryPlan made;

  // The first and the last value are outside.
  PlannedGraph(std::initializer_list<std::size_t> counts, std::initializer_list<Step> steps) {
    for (const std::size_t count : counts) {
      xnn_value one = {};
      one.type = xnn_value_type_dense_tensor;
      one.datatype = xnn_datatype_fp32;
      one.shape.num_dims = 1;
      one.shape.dim[0] = count;
      one.size = count * sizeof(float);
      one.allocation_type = xnn_allocation_type_workspace;
      values.push_back(one);
    }
    values.front().allocation_type = values.back().allocation_type = xnn_allocation_type_external;
    for (const Step& step : steps) {
      node(step);
    }
  }
  void node(const Step& step) {
    xnn_operator_data one = {};
    one.type = step.type;
    std::copy(step.inputs.begin(), step.inputs.end(), one.inputs);
    one.num_inputs = static_cast<std::uint32_t>(step.inputs.size());
    one.outputs[0] = step.output;
    one.num_outputs = 1;
    operators.push_back(one);
  }
  void plan() {
    runtime.values = values.data();
    runtime.num_values = values.size();
    runtime.opdata = operators.data();
    runtime.num_ops = operators.size();
    CHECK(made.make(runtime) == xnn_status_success);
    CHECK(made.apply(&runtime, &memory) == xnn_status_success);
  }
  bool same(std::uint32_t one, std::uint32_t other) const { return values[one].data == values[other].data; }
  // Where a value, an operator's own memory or scales begin in the block.
  std::size_t offset(const void* data) const {
    return static_cast<std::size_t>(static_cast<const std::uint8_t*>(data) - memory.data());
  }
};

}  // namespace

TEST(memory_plan_overwrites_an_input_that_nothing_needs) {
  PlannedGraph graph({1000, 1000, 1000, 1000, 1000},
                     {{kConv, {0}, 1}, {kUnary, {1}, 2}, {kBinary, {2, 1}, 3}, {kConv, {3}, 4}});
  graph.plan();
  CHECK(!graph.same(1, 2));  // the sum needs the first again
  CHECK(graph.same(3, 1) || graph.same(3, 2));
  CHECK(graph.values[0].data == nullptr);
  CHECK(graph.values[4].data == nullptr);
}

TEST(memory_plan_aligns_values_and_leaves_room_to_read_behind_them) {
  PlannedGraph graph({7, 1, 5, 16, 17, 33, 100, 301, 7}, {});
  for (std::uint32_t value = 1; value < 8; ++value) {
    graph.node({kConv, {0}, value});
    graph.operators.back().workspace_size = graph.values[value].shape.dim[0];
  }
  for (std::uint32_t value = 1; value < 8; ++value) {
    graph.node({kConv, {value}, 8});
  }
  graph.plan();
  // A line of the caches at least, and kernels of sparse layers read twice as far as others.
  for (std::uint32_t value = 1; value < 8; ++value) {
    const std::size_t at = graph.offset(graph.values[value].data);
    CHECK_EQUAL(at % 64, std::size_t{0});
    CHECK_EQUAL(at % XNN_ALLOCATION_ALIGNMENT, std::size_t{0});
    CHECK(at + graph.values[value].size + 2 * XNN_EXTRA_BYTES <= graph.made.size());
  }
  for (const xnn_operator_data& one : graph.operators) {
    CHECK_EQUAL(graph.offset(one.workspace) % 64, std::size_t{0});
    CHECK(graph.offset(one.workspace) + one.workspace_size + 2 * XNN_EXTRA_BYTES <= graph.made.size());
  }
  CHECK_EQUAL(reinterpret_cast<std::uintptr_t>(graph.memory.data()) % XNN_ALLOCATION_ALIGNMENT,
              std::uintptr_t{0});
}

TEST(memory_plan_keeps_scales_beside_rows_that_are_quantized_as_they_come) {
  PlannedGraph graph({1000, 250, 250, 1}, {{kUnary, {0}, 1}, {kUnary, {1}, 2}});
  graph.values[1].datatype = xnn_datatype_qdint8;
  graph.values[1].quantization.dynamic_params_size = 80;
  graph.plan();
  const auto* data = static_cast<const std::uint8_t*>(graph.values[1].data);
  const auto* scales = reinterpret_cast<const std::uint8_t*>(graph.values[1].quantization.dynamic_params);
  const auto* next = static_cast<const std::uint8_t*>(graph.values[2].data);
  // Kernels read scales behind the last row's.
  const std::size_t read = 80 + XNN_EXTRA_QUANTIZATION_PARAMS * sizeof(xnn_quantization_params);
  CHECK(scales >= data + graph.values[1].size);
  CHECK_EQUAL(graph.offset(scales) % 64, std::size_t{0});
  CHECK(graph.offset(scales) + read <= graph.made.size());
  CHECK(next >= scales + read || next + graph.values[2].size <= data);
}

TEST(memory_places_of_values_that_are_there_at_once_are_apart) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    const std::vector<Life> lives = any_lives(seed);
    const Places places = find_places(lives);
    CHECK_EQUAL(places.offsets.size(), lives.size());
    CHECK(apart(lives, places));
    CHECK(places.size >= least_size(lives));
  }
}
