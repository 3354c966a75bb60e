#include <string>

#include "check.h"
#include "model_builder.h"
#include "onnx_file.h"
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

std::string fault_of(const ModelRecipe& recipe) {
  const Guard guard = guard_provider(graph_of(make_model(recipe)), true);
  return guard.faults.empty() ? "" : guard.faults.at(0).why;
}

TEST(gemm_in_the_one_form_that_the_provider_computes_is_left_to_it) {
  CHECK_EQUAL(fault_of(gemm({2, 3}, {5})), "");
}

TEST(gemm_in_other_forms_is_kept_from_the_provider) {
  CHECK(fault_of(gemm({2, 3}, {})).find("no C: the XNNPACK provider crashes") != std::string::npos);
  CHECK(fault_of(gemm({-1, 3}, {5})).find("rows is not fixed") != std::string::npos);
  CHECK(fault_of(gemm({3, 3}, {3, 5})).find("not one number for each column") != std::string::npos);
  ModelRecipe transposed = gemm({3, 2}, {5});
  transposed.nodes[0].attributes.push_back(attribute("transA", std::int64_t{1}));
  CHECK(fault_of(transposed).find("A is transposed") != std::string::npos);
}

TEST(what_the_provider_leaves_alone_by_itself_is_no_fault) {
  ModelRecipe given = gemm({-1, 3}, {});
  given.constants.clear();
  given.inputs.push_back(value("b", {3, 5}));
  CHECK_EQUAL(fault_of(given), "");
}

TEST(a_shape_that_the_file_does_not_give_is_fixed_when_the_inputs_are) {
  ModelRecipe recipe = gemm({2, 3}, {5});
  recipe.nodes.insert(recipe.nodes.begin(), {"Relu", {"z"}, {"x"}, "relu", "", {}});
  recipe.inputs = {value("z", {2, 3})};
  CHECK_EQUAL(fault_of(recipe), "");
  recipe.inputs = {value("z", {-1, 3})};
  CHECK(fault_of(recipe).find("rows is not fixed") != std::string::npos);
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

}  // namespace
