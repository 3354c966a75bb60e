// Where nodes ran, and how a model is kept from the XNNPACK provider where it would go wrong. Which forms
// those are, all operators' are run for, guarded and unguarded: tests/integration/test_onnx_operators.py.
#include "check.h"
#include "declarations.h"
#include "model_builder.h"
#include "model_file.h"
#include "profile.h"
#include "provider_faults.h"

namespace {

using namespace slipway;
using namespace slipway::onnx;

// As ONNX Runtime writes it, an event a line.
std::string node_event(const std::string& name, const std::string& op, int microseconds) {
  return R"({"cat" : "Node","pid" :1,"tid" :1,"dur" :)" + std::to_string(microseconds) +
         R"(,"ts" :1,"ph" : "X","name" :")" + name + R"(_kernel_time","args" : {"op_name" : ")" + op +
         R"(","provider" : "CPUExecutionProvider"}},)" + "\n";
}

const std::string kProfile =
    "[\n"
    R"({"cat" : "Session","dur" :5,"name" :"model_run","args" : {}},)"
    "\n" +
    node_event("conv_token_5", "Conv", 20) + node_event("flat", "Flatten", 1000) +
    node_event("conv_token_5", "Conv", 40) + "]\n";

Graph graph_of(const std::string& bytes) {
  return read_onnx(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "a").value();
}

TEST(profile_is_summed_up) {
  const auto events = read_profile(kProfile);
  CHECK(events.ok() && events.value().size() == 3);
  const auto rows = by_operator(events.value(), 1, 1);
  CHECK_EQUAL(rows.size(), std::size_t{2});
  CHECK_EQUAL(rows.at(0).op, "Flatten");
  CHECK_EQUAL(rows.at(1).count, std::uint64_t{2});
  CHECK(rows.at(1).total_ms > 0.0599 && rows.at(1).total_ms < 0.0601);
  // The first of two was the warm-up.
  const auto second = by_operator({{"a", "Conv", "CPU", 900}, {"a", "Conv", "CPU", 10}}, 1, 2);
  CHECK_EQUAL(second.at(0).count, std::uint64_t{1});
  CHECK_EQUAL(second.at(0).total_ms, 0.01);
  CHECK(read_profile("{}").status().code() == Code::kExecution);
}

TEST(placement_gives_hints) {
  const auto events = read_profile(kProfile).value();
  const Placement placement = placement_of(events, {true, 1, 4, {}});
  CHECK_EQUAL(placement.nodes.size(), std::size_t{2});
  CHECK_EQUAL(placement.hints.size(), std::size_t{1});
  CHECK_CONTAINS(placement.hints.at(0), "--ort_threads 4");
  // Nothing to suggest when the pool is as large as it can be, or no provider was asked for.
  CHECK(placement_of(events, {true, 4, 4, {}}).hints.empty());
  CHECK(placement_of(events, {false, 1, 4, {}}).hints.empty());
  const Placement open = placement_of(events, {true, 4, 4, {}, true, "1x1x4x4", {}});
  CHECK_EQUAL(open.hints.size(), std::size_t{1});
  CHECK_CONTAINS(open.hints.at(0), "1 node of operators that XNNPACK has in fixed sizes");
  const Placement closed = placement_of(events, {true, 4, 4, {}, false, "1x1x4x4", {"x"}});
  CHECK_CONTAINS(closed.hints.at(0), "fixed for this session by --input_shapes 1x1x4x4");
}

TEST(inputs_are_declared_in_the_sizes_that_were_given) {
  ModelRecipe recipe = conv_model();
  recipe.inputs = {value("x", {1, 1, -1, -1})};
  const std::string bytes = make_model(recipe);
  Graph graph = graph_of(bytes);
  CHECK(has_open_inputs(graph));
  const std::vector<std::string> fixed = fix_inputs({{1, 1, 4, 4}}, &graph);
  CHECK(fixed == std::vector<std::string>{"x"} && !has_open_inputs(graph));
  CHECK(fix_inputs({{1, 1, 4, 4}}, &graph).empty());
  // The same model, but for that input.
  const std::string written =
      with_inputs({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, graph, fixed);
  const Graph again = graph_of(written);
  CHECK(again.value("x")->shape == (Shape{1, 1, 4, 4}));
  CHECK(again.inputs == graph.inputs && again.nodes.size() == graph.nodes.size());
  CHECK(again.constants == graph.constants && again.opsets == graph.opsets);
}

TEST(sizes_of_other_values_follow_the_inputs_unless_data_decides) {
  ModelRecipe recipe;
  recipe.nodes = {{"Relu", {"x"}, {"r"}, "relu", ""}, {"Gemm", {"r", "b", "c"}, {"y"}, "fc", ""}};
  recipe.inputs = {value("x", {-1, 3})};
  recipe.outputs = {value("y", {-1, 5})};
  recipe.constants = {constant("b", {3, 5}, 1), constant("c", {5}, 1)};
  recipe.values = {value("r", {-1, 3})};
  Graph graph = graph_of(make_model(recipe));
  CHECK_EQUAL(guard_provider(graph).faults.size(), std::size_t{1});
  fix_inputs({{2, 3}}, &graph);
  CHECK(guard_provider(graph).faults.empty());
  recipe.nodes.at(0).op = "Compress";
  graph = graph_of(make_model(recipe));
  fix_inputs({{2, 3}}, &graph);
  CHECK_EQUAL(guard_provider(graph).faults.size(), std::size_t{1});
}

}  // namespace
