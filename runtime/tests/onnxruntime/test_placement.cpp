#include "check.h"
#include "declarations.h"
#include "model_builder.h"
#include "model_file.h"
#include "placement.h"
#include "profile.h"
#include "provider_faults.h"
#include "provider_rules.h"

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

TEST(placement_gives_reasons_and_a_hint) {
  ModelRecipe recipe = conv_model();
  recipe.constants.erase(recipe.constants.begin());
  recipe.inputs.push_back(value("w", {2, 1, 3, 3}));
  const std::string bytes = make_model(recipe);
  const auto graph = read_onnx(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "a");
  const Placement placement = placement_of(graph.value(), read_profile(kProfile).value(), {true, 1, 4, {}});
  CHECK_EQUAL(placement.nodes.size(), std::size_t{2});
  CHECK_EQUAL(placement.nodes.at(0).why, "its weights are given at run time");
  CHECK_EQUAL(placement.nodes.at(1).why, "not in the XNNPACK provider's table");
  CHECK_EQUAL(placement.hints.size(), std::size_t{1});
  CHECK_CONTAINS(placement.hints.at(0), "--ort_threads 4");
  // Nothing to suggest when the pool is as large as it can be, or no provider was asked for.
  CHECK(placement_of(graph.value(), read_profile(kProfile).value(), {true, 4, 4, {}}).hints.empty());
  CHECK(
      placement_of(graph.value(), read_profile(kProfile).value(), {false, 1, 4, {}}).nodes.at(1).why.empty());
}

Graph read_graph(const std::string& bytes) {
  return read_onnx(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "a").value();
}

TEST(placement_names_sizes_that_are_open) {
  ModelRecipe recipe = conv_model();
  recipe.inputs = {value("x", {1, 1, -1, -1})};
  const std::string bytes = make_model(recipe);
  Graph graph = read_graph(bytes);
  // The CPU provider's blocked layout: named after the output of what was fused, with what it puts around.
  const std::vector<NodeEvent> events{{graph.nodes.at(1).outputs.at(0) + "_nchwc", "Conv", kCpu, 1},
                                      {"ReorderOutput", "ReorderOutput", kCpu, 1}};
  const Placement open = placement_of(graph, events, {true, 4, 4, {}, "1x1x4x4", {}});
  CHECK_EQUAL(open.nodes.at(0).why, "its input's channels, height and width are not all fixed");
  CHECK_EQUAL(open.nodes.at(1).why, "added by ONNX Runtime when it optimized the graph");
  CHECK_EQUAL(open.hints.size(), std::size_t{1});
  CHECK_CONTAINS(open.hints.at(0), "1 node stayed away");
  const std::vector<std::string> fixed = fix_inputs({{1, 1, 4, 4}}, &graph);
  CHECK(fixed == std::vector<std::string>{"x"});
  CHECK(fix_inputs({{1, 1, 4, 4}}, &graph).empty());
  const Placement closed = placement_of(graph, events, {true, 4, 4, {}, "1x1x4x4", fixed});
  CHECK_CONTAINS(closed.nodes.at(0).why, "the provider's own checks");
  CHECK_EQUAL(closed.hints.size(), std::size_t{1});
  // The same model, but for that input.
  const std::string written =
      with_inputs({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, graph, fixed);
  const Graph again = read_graph(written);
  CHECK(again.value("x")->shape == (Shape{1, 1, 4, 4}));
  CHECK(again.inputs == graph.inputs && again.nodes.size() == graph.nodes.size());
  CHECK(again.constants == graph.constants && again.opsets == graph.opsets);
}

TEST(sizes_of_other_values_follow_the_inputs_unless_data_decides) {
  ModelRecipe recipe;
  recipe.nodes = {{"Relu", {"x"}, {"r"}, "relu", "", {}}, {"Gemm", {"r", "b", "c"}, {"y"}, "fc", "", {}}};
  recipe.inputs = {value("x", {-1, 3})};
  recipe.outputs = {value("y", {-1, 5})};
  recipe.constants = {constant("b", {3, 5}, 1), constant("c", {5}, 1)};
  recipe.values = {value("r", {-1, 3})};
  Graph graph = read_graph(make_model(recipe));
  CHECK_EQUAL(guard_provider(graph, true).faults.size(), std::size_t{1});
  fix_inputs({{2, 3}}, &graph);
  CHECK(guard_provider(graph, true).faults.empty());
  recipe.nodes.at(0).op = "Compress";
  graph = read_graph(make_model(recipe));
  fix_inputs({{2, 3}}, &graph);
  CHECK_EQUAL(guard_provider(graph, true).faults.size(), std::size_t{1});
}

}  // namespace
