// How a model is kept from the XNNPACK provider where it would go wrong.
// tests/integration/test_onnx_operators.py runs such forms, guarded and unguarded.
#include "check.h"
#include "model_builder.h"
#include "model_file.h"
#include "provider_faults.h"
#include "provider_rules.h"

namespace {

using namespace slipway;
using namespace slipway::onnx;

Graph graph_of(const std::string& bytes) {
  return read_onnx(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "a").value();
}

ModelRecipe gemm(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& c) {
  ModelRecipe recipe;
  recipe.nodes = {{"Gemm", {"x", "b"}, {"y"}, "fc", "", {}}};
  recipe.inputs = {value("x", a)};
  recipe.outputs = {value("y", {-1, 5})};
  recipe.constants = {constant("b", {3, 5}, 1)};
  if (!c.empty()) {
    recipe.nodes[0].inputs.push_back("c");
    recipe.constants.push_back(constant("c", c, 1));
  }
  return recipe;
}

TEST(float16_is_kept_from_the_provider) {
  Graph graph = graph_of(make_model(conv_model()));
  CHECK(guard_provider(graph, true).faults.empty());
  graph.values["x"].dtype = DType::kFloat16;
  graph.values["w"].dtype = DType::kFloat16;
  const Guard guard = guard_provider(graph, true);
  CHECK_EQUAL(guard.faults.size(), std::size_t{1});
  CHECK_EQUAL(guard.faults.at(0).withheld, "w");
  CHECK_CONTAINS(guard.faults.at(0).why, "float16");
}

TEST(a_withheld_constant_is_an_input_too) {
  const std::string bytes = make_model(gemm({2, 3}, {}));
  const Guard guard = guard_provider(graph_of(bytes), true);
  CHECK_EQUAL(guard.faults.at(0).withheld, "b");
  CHECK(!guard.whole);
  const Graph guarded = graph_of(bytes + guard.suffix);
  CHECK_EQUAL(guarded.nodes.size(), std::size_t{1});
  CHECK_EQUAL(guarded.inputs.size(), std::size_t{1});  // those that have no initializer
  CHECK(guarded.value("b")->shape == (Shape{3, 5}));
  CHECK_EQUAL(expected_placement(graph_of(bytes), guard).at(0).provider, kCpu);
}

TEST(a_file_that_cannot_be_appended_to_is_kept_away_whole) {
  const Graph graph = graph_of(make_model(gemm({2, 3}, {})));
  const Guard guard = guard_provider(graph, false);
  CHECK(guard.whole && guard.suffix.empty());
  Node other;
  other.index = 7;
  CHECK(guard.why(other).find("kept from the XNNPACK provider, for Gemm fc") != std::string::npos);
}

TEST(a_circle_of_constants_ends) {
  ModelRecipe recipe = gemm({2, 3}, {});
  recipe.nodes.push_back({"Identity", {"b"}, {"b"}, "circle", "", {}});
  const Guard guard = guard_provider(graph_of(make_model(recipe)), true);
  CHECK_EQUAL(guard.faults.at(0).withheld, "");
  CHECK(guard.whole);
}

}  // namespace
