// Places of values in one block of memory, and the block.
#include <xnnpack/common.h>
#include <xnnpack/node-type.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "check.h"
#include "lean/xnnpack/memory_places.h"
#include "lean/xnnpack/memory_plan.h"

using namespace slipway::lean;

namespace {

class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : seed_(seed) {}
  std::size_t below(std::size_t limit) {
    seed_ = seed_ * 1664525U + 1013904223U;
    return (seed_ >> 8) % limit;
  }

 private:
  std::uint32_t seed_;
};

std::vector<Life> any_lives(std::uint32_t seed) {
  Numbers numbers(seed);
  const std::size_t steps = 1 + numbers.below(60);
  std::vector<Life> lives(1 + numbers.below(80));
  for (Life& life : lives) {
    life.first = numbers.below(steps);
    // Most values are read soon, and some are kept for long.
    const std::size_t reach = numbers.below(5) == 0 ? steps : 3;
    life.last = std::min(steps - 1, life.first + numbers.below(reach));
    life.size = 64 * numbers.below(numbers.below(4) == 0 ? 400 : 20);
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

// The simple way: each value as it comes, at the first place that is free.
std::size_t first_fit(const std::vector<Life>& lives) {
  std::vector<std::size_t> order(lives.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return lives[one].first != lives[other].first ? lives[one].first < lives[other].first : one < other;
  });
  Places places;
  places.offsets.resize(lives.size());
  std::vector<Life> done;
  Places so_far;
  for (const std::size_t i : order) {
    done.push_back(lives[i]);
    so_far.offsets.push_back(0);
    so_far.size = SIZE_MAX;
    while (!apart(done, so_far)) {
      so_far.offsets.back() += 64;
    }
    places.size = std::max(places.size, so_far.offsets.back() + lives[i].size);
  }
  return places.size;
}

// A graph as XNNPACK prepares it, of values in float32 with one dimension.
struct PlannedGraph {
  std::vector<xnn_value> values;
  std::vector<xnn_operator_data> operators;
  xnn_runtime runtime = {};
  WorkMemory memory;
  MemoryPlan made;

  std::uint32_t value(std::size_t count, xnn_allocation_type where = xnn_allocation_type_workspace) {
    xnn_value one = {};
    one.type = xnn_value_type_dense_tensor;
    one.datatype = xnn_datatype_fp32;
    one.shape.num_dims = 1;
    one.shape.dim[0] = count;
    one.size = count * sizeof(float);
    one.allocation_type = where;
    values.push_back(one);
    return static_cast<std::uint32_t>(values.size() - 1);
  }
  void node(xnn_node_type type, std::initializer_list<std::uint32_t> inputs, std::uint32_t output) {
    xnn_operator_data one = {};
    one.type = type;
    std::copy(inputs.begin(), inputs.end(), one.inputs);
    one.num_inputs = static_cast<std::uint32_t>(inputs.size());
    one.outputs[0] = output;
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
  bool overlap(std::uint32_t one, std::uint32_t other) const {
    const std::size_t first = offset(values[one].data);
    const std::size_t second = offset(values[other].data);
    return first < second + values[other].size && second < first + values[one].size;
  }
};

}  // namespace

TEST(memory_plan_overwrites_an_input_that_nothing_needs) {
  PlannedGraph graph;
  const std::uint32_t in = graph.value(1000, xnn_allocation_type_external);
  const std::uint32_t first = graph.value(1000);
  const std::uint32_t second = graph.value(1000);
  const std::uint32_t sum = graph.value(1000);
  const std::uint32_t out = graph.value(1000, xnn_allocation_type_external);
  graph.node(xnn_node_type_convolution_2d, {in}, first);
  graph.node(xnn_node_type_unary_elementwise, {first}, second);
  graph.node(xnn_node_type_binary_elementwise, {second, first}, sum);
  graph.node(xnn_node_type_convolution_2d, {sum}, out);
  graph.plan();
  CHECK(!graph.same(first, second));  // the sum needs the first again
  CHECK(graph.same(sum, first) || graph.same(sum, second));
  CHECK(graph.values[in].data == nullptr);
  CHECK(graph.values[out].data == nullptr);
}

TEST(memory_plan_overwrites_no_input_of_another_size_or_operator) {
  PlannedGraph graph;
  const std::uint32_t in = graph.value(1000, xnn_allocation_type_external);
  const std::uint32_t small = graph.value(10);
  const std::uint32_t large = graph.value(1000);
  const std::uint32_t rows = graph.value(1000);
  const std::uint32_t out = graph.value(1000, xnn_allocation_type_external);
  graph.node(xnn_node_type_convolution_2d, {in}, small);
  graph.node(xnn_node_type_binary_elementwise, {small, in}, large);
  graph.node(xnn_node_type_static_transpose, {large}, rows);
  graph.node(xnn_node_type_convolution_2d, {rows}, out);
  graph.operators[1].workspace_size = 640;
  graph.plan();
  CHECK(!graph.same(small, large));
  CHECK(!graph.same(large, rows));
  CHECK(graph.operators[1].workspace != graph.values[small].data);
  CHECK(graph.operators[1].workspace != graph.values[large].data);
}

TEST(memory_plan_overwrites_no_input_of_another_element_size) {
  PlannedGraph graph;
  const std::uint32_t in = graph.value(1000, xnn_allocation_type_external);
  const std::uint32_t wide = graph.value(1000);
  const std::uint32_t half = graph.value(1000);
  const std::uint32_t again = graph.value(1000);
  const std::uint32_t out = graph.value(1000, xnn_allocation_type_external);
  graph.values[half].datatype = xnn_datatype_fp16;
  graph.values[half].size = 2000;
  graph.node(xnn_node_type_convolution_2d, {in}, wide);
  graph.node(xnn_node_type_unary_elementwise, {wide}, half);
  graph.node(xnn_node_type_unary_elementwise, {half}, again);
  graph.node(xnn_node_type_convolution_2d, {again}, out);
  graph.plan();
  CHECK(!graph.overlap(wide, half));
  CHECK(!graph.overlap(half, again));
}

TEST(memory_plan_overwrites_nothing_with_scales_of_rows) {
  PlannedGraph graph;
  const std::uint32_t in = graph.value(1000, xnn_allocation_type_external);
  const std::uint32_t bytes = graph.value(1000);
  const std::uint32_t rows = graph.value(1000);
  const std::uint32_t again = graph.value(1000);
  const std::uint32_t out = graph.value(1000, xnn_allocation_type_external);
  for (const std::uint32_t value : {bytes, rows, again}) {
    graph.values[value].datatype = value == rows ? xnn_datatype_qdint8 : xnn_datatype_qint8;
    graph.values[value].size = 1000;
  }
  graph.node(xnn_node_type_convolution_2d, {in}, bytes);
  graph.node(xnn_node_type_unary_elementwise, {bytes}, rows);
  graph.node(xnn_node_type_unary_elementwise, {rows}, again);
  graph.node(xnn_node_type_convolution_2d, {again}, out);
  graph.plan();
  CHECK(!graph.overlap(bytes, rows));
  CHECK(!graph.overlap(rows, again));
}

TEST(memory_plan_keeps_a_place_for_the_last_value_in_it) {
  PlannedGraph graph;
  const std::uint32_t in = graph.value(1000, xnn_allocation_type_external);
  const std::uint32_t first = graph.value(1000);
  const std::uint32_t second = graph.value(1000);
  const std::uint32_t third = graph.value(1000);
  const std::uint32_t small = graph.value(100);
  const std::uint32_t out = graph.value(1000, xnn_allocation_type_external);
  graph.node(xnn_node_type_convolution_2d, {in}, first);
  graph.node(xnn_node_type_unary_elementwise, {first}, second);
  graph.node(xnn_node_type_softmax, {second}, third);
  graph.node(xnn_node_type_convolution_2d, {third}, small);
  graph.node(xnn_node_type_binary_elementwise, {third, small}, out);
  graph.plan();
  CHECK(graph.same(first, second));
  CHECK(graph.same(first, third));
  CHECK(!graph.overlap(third, small));
}

TEST(memory_plan_aligns_values_and_leaves_room_to_read_behind_them) {
  PlannedGraph graph;
  const std::uint32_t in = graph.value(7, xnn_allocation_type_external);
  std::vector<std::uint32_t> values;
  for (const std::size_t count : std::initializer_list<std::size_t>{1, 5, 16, 17, 33, 100, 301}) {
    values.push_back(graph.value(count));
    graph.node(xnn_node_type_convolution_2d, {in}, values.back());
    graph.operators.back().workspace_size = count;
  }
  const std::uint32_t out = graph.value(7, xnn_allocation_type_external);
  for (const std::uint32_t value : values) {
    graph.node(xnn_node_type_convolution_2d, {value}, out);
  }
  graph.plan();
  // A line of the caches at least, and kernels of sparse layers read twice as far as others.
  for (const std::uint32_t value : values) {
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
  PlannedGraph graph;
  const std::uint32_t in = graph.value(1000, xnn_allocation_type_external);
  const std::uint32_t rows = graph.value(250);
  const std::uint32_t other = graph.value(250);
  graph.values[rows].datatype = xnn_datatype_qdint8;
  graph.values[rows].quantization.dynamic_params_size = 80;
  graph.node(xnn_node_type_unary_elementwise, {in}, rows);
  graph.node(xnn_node_type_unary_elementwise, {rows}, other);
  graph.plan();
  const auto* data = static_cast<const std::uint8_t*>(graph.values[rows].data);
  const auto* scales = reinterpret_cast<const std::uint8_t*>(graph.values[rows].quantization.dynamic_params);
  const auto* next = static_cast<const std::uint8_t*>(graph.values[other].data);
  // Kernels read scales behind the last row's.
  const std::size_t read = 80 + XNN_EXTRA_QUANTIZATION_PARAMS * sizeof(xnn_quantization_params);
  CHECK(scales >= data + graph.values[rows].size);
  CHECK_EQUAL(graph.offset(scales) % 64, std::size_t{0});
  CHECK(graph.offset(scales) + read <= graph.made.size());
  CHECK(next >= scales + read || next + graph.values[other].size <= data);
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

TEST(memory_places_need_no_more_than_the_first_that_are_free) {
  std::size_t ours = 0;
  std::size_t simple = 0;
  std::size_t least = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const std::vector<Life> lives = any_lives(seed);
    ours += find_places(lives).size;
    simple += first_fit(lives);
    least += least_size(lives);
  }
  CHECK(ours <= simple);
  CHECK(ours * 100 <= least * 104);
}

TEST(memory_places_use_gaps) {
  // The third lies between the first two, the fourth below all that stays.
  const std::vector<Life> lives = {{0, 1, 640}, {0, 9, 512}, {2, 9, 64}, {2, 9, 576}};
  CHECK_EQUAL(find_places(lives).size, std::size_t{640 + 512});
  CHECK_EQUAL(least_size(lives), std::size_t{640 + 512});
}

TEST(memory_places_of_a_chain_are_two) {
  std::vector<Life> lives;
  for (std::size_t i = 0; i < 50; ++i) {
    lives.push_back({i, i + 1, 4096});
  }
  CHECK_EQUAL(find_places(lives).size, std::size_t{2 * 4096});
}

TEST(memory_places_of_nothing) {
  CHECK_EQUAL(find_places({}).size, std::size_t{0});
  CHECK_EQUAL(find_places({{0, 5, 0}}).size, std::size_t{0});
}

TEST(work_memory_grows_and_says_so) {
  WorkMemory memory;
  CHECK(memory.hold(0));
  CHECK_EQUAL(memory.version(), std::size_t{0});
  CHECK(memory.hold(100));
  CHECK_EQUAL(memory.version(), std::size_t{1});
  const std::uint8_t* before = memory.data();
  CHECK(before != nullptr);
  CHECK(memory.hold(50));
  CHECK(memory.data() == before);
  CHECK_EQUAL(memory.version(), std::size_t{1});
  CHECK(memory.hold(std::size_t{1} << 22));
  CHECK_EQUAL(memory.version(), std::size_t{2});
  memory.data()[(std::size_t{1} << 22) - 1] = 1;
  CHECK(!memory.hold(SIZE_MAX));
  CHECK_EQUAL(memory.version(), std::size_t{3});
  CHECK(memory.hold(64));
  CHECK(memory.data() != nullptr);
}
