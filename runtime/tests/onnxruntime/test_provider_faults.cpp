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

TEST(a_product_with_a_vector_before_a_matrix_is_kept_from_the_provider) {
  ModelRecipe product = gemm({3}, {});
  product.nodes[0].op = "MatMul";
  CHECK_EQUAL(fault_of(product), "A is a vector: the XNNPACK provider crashes");
  product.inputs = {value("x", {2, 3})};
  CHECK_EQUAL(fault_of(product), "");
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

TEST(float16_without_a_constant_keeps_the_whole_model_away) {
  Graph graph = graph_of(make_model(one({"Softmax", {"x"}, {"y"}, "", "", {}}, {value("x", {2, 3})})));
  graph.values["x"].dtype = DType::kFloat16;
  CHECK(guard_provider(graph, true).whole);
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

TEST(limits_found_in_1_21_keep_xnnpack_away) {
  const auto why = [](const ModelRecipe& recipe) {
    const Graph graph = graph_of(make_model(recipe));
    return Judge(graph)(graph.nodes.back()).why;
  };
  const auto pool = [&](Message setting) {
    return why(one({"AveragePool", {"x"}, {"y"}, "", "", {std::move(setting)}}, {value("x", {1, 1, 8, 8})}));
  };
  CHECK_EQUAL(pool(attribute("ceil_mode", std::int64_t{0})), "");
  CHECK_CONTAINS(pool(attribute("ceil_mode", std::int64_t{1})), "rounded up");
  CHECK_CONTAINS(pool(attribute("count_include_pad", std::int64_t{1})), "count_include_pad");
  CHECK_CONTAINS(pool(attribute("auto_pad", std::string("SAME_LOWER"))), "SAME_LOWER");
  ModelRecipe given = gemm({2, 3}, {});
  given.constants.clear();
  given.inputs.push_back(value("b", {3, 5}));
  CHECK_CONTAINS(why(given), "B is given at run time");
  CHECK_CONTAINS(why(one({"MaxPool", {"x"}, {"y"}, "", "", {}}, {value("x", {1, 1, 8, -1})})),
                 "channels, height and width are not all fixed");
}

TEST(activations_count_with_what_computes_them) {
  const std::string bytes = make_model(conv_model());
  const auto placed = expected_placement(graph_of(bytes));
  CHECK_EQUAL(placed.at(0).provider, kXnnpack);
  CHECK_EQUAL(placed.at(1).op, "Relu");
  CHECK_EQUAL(placed.at(1).provider, kXnnpack);
  CHECK_EQUAL(placed.at(2).provider, kCpu);
}

// y = Q(op(DQ(x))), one step for all.
ModelRecipe between(NodeRecipe node, float step = 0.00390625F) {
  ModelRecipe recipe;
  recipe.nodes = {{"QuantizeLinear", {"x", "s"}, {"xq"}, "", "", {}},
                  {"DequantizeLinear", {"xq", "s"}, {"xd"}, "", "", {}},
                  std::move(node),
                  {"QuantizeLinear", {"yd", "s"}, {"yq"}, "", "", {}},
                  {"DequantizeLinear", {"yq", "s"}, {"y"}, "", "", {}}};
  recipe.inputs = {value("x", {1, 1, 8, 8})};
  recipe.constants = {constant("s", {}, step)};
  return recipe;
}

TEST(operators_between_dequantize_and_quantize_are_one) {
  const auto placed = [](NodeRecipe node) {
    return expected_placement(graph_of(make_model(between(std::move(node)))));
  };
  const auto softmax = placed({"Softmax", {"xd"}, {"yd"}, "", "", {}});
  CHECK_EQUAL(softmax.size(), std::size_t{3});  // with the first and the last of the others
  CHECK_EQUAL(softmax.at(1).op, "com.microsoft:QLinearSoftmax");
  CHECK_EQUAL(softmax.at(1).provider, kXnnpack);
  const auto product = placed({"MatMul", {"xd", "s"}, {"yd"}, "", "", {}});
  CHECK_EQUAL(product.at(1).why, "the XNNPACK provider has it in float only");
  const Graph quantized = graph_of(make_model(between({"Gemm", {"xd", "s"}, {"yd"}, "", "", {}})));
  CHECK(guard_provider(quantized, true).faults.empty());
  const auto pool = placed({"AveragePool", {"xd"}, {"yd"}, "", "", {}});
  CHECK_CONTAINS(pool.at(1).why, "count_include_pad");
}

TEST(softmax_is_taken_in_steps_of_one_256th_only) {
  const NodeRecipe softmax{"Softmax", {"xd"}, {"yd"}, "", "", {}};
  CHECK_EQUAL(expected_placement(graph_of(make_model(between(softmax)))).at(1).why, "");
  CHECK_CONTAINS(expected_placement(graph_of(make_model(between(softmax, 0.1F)))).at(1).why,
                 "steps of 1/256");
}

TEST(softmax_counts_a_negative_axis_from_the_back) {
  const auto fault = [](std::int64_t axis) {
    ModelRecipe recipe =
        one({"Softmax", {"x"}, {"y"}, "", "", {attribute("axis", axis)}}, {value("x", {2, -1, 10})});
    recipe.opset = 12;
    return fault_of(recipe);
  };
  CHECK_EQUAL(fault(-1), "");
  CHECK_CONTAINS(fault(-2), "from its axis on are not fixed: the XNNPACK provider crashes");
  CHECK_CONTAINS(fault(1), "from its axis on are not fixed");
}

TEST(resize_that_the_provider_refuses_the_model_for_is_kept_from_it) {
  const Message linear = attribute("mode", std::string("linear"));
  ModelRecipe recipe = one({"Resize", {"x", "", "r"}, {"y"}, "", "", {linear}}, {value("x", {1, 1, 8, 8})},
                           {constant("r", {4}, 2)});
  CHECK_EQUAL(fault_of(recipe), "");
  recipe.opset = 10;
  CHECK_CONTAINS(fault_of(recipe), "before 11: the XNNPACK provider refuses the whole model");
  ModelRecipe quantized = between({"Resize", {"xd", "", "r"}, {"yd"}, "", "", {linear}});
  quantized.constants.push_back(constant("r", {4}, 2));
  const Guard guard = guard_provider(graph_of(make_model(quantized)), true);
  CHECK_CONTAINS(guard.faults.at(0).why, "the same steps: the XNNPACK provider refuses the whole model");
  CHECK_EQUAL(guard.faults.at(0).withheld, "r");
  quantized.nodes[3].inputs[1] = "other";
  quantized.constants.push_back(constant("other", {}, 0.5F));
  CHECK_EQUAL(fault_of(quantized), "");
}

TEST(integers_are_constant_between_dequantize_and_quantize_only) {
  ModelRecipe recipe = gemm({2, 3}, {});
  recipe.nodes.insert(recipe.nodes.begin(), {"DequantizeLinear", {"q", "s"}, {"b"}, "", "", {}});
  recipe.constants = {constant("q", {3, 5}, 1), constant("s", {}, 1)};
  const Graph graph = graph_of(make_model(recipe));
  CHECK(guard_provider(graph, true).faults.empty());
  CHECK_EQUAL(Judge(graph)(graph.nodes.back()).why, "B is given at run time");
  CHECK_EQUAL(expected_placement(graph).size(), std::size_t{2});  // ONNX Runtime runs DequantizeLinear
}

TEST(clip_with_an_empty_limit_is_not_fused) {
  const auto provider = [](const std::vector<std::string>& limits) {
    ModelRecipe recipe;
    recipe.nodes = {{"MaxPool", {"x"}, {"p"}, "", "", {}}, {"Clip", {"p"}, {"y"}, "", "", {}}};
    recipe.nodes[1].inputs.insert(recipe.nodes[1].inputs.end(), limits.begin(), limits.end());
    recipe.inputs = {value("x", {1, 1, 8, 8})};
    recipe.constants = {constant("0", {}, 0), constant("6", {}, 6)};
    return expected_placement(graph_of(make_model(recipe))).at(1).provider;
  };
  CHECK_EQUAL(provider({"0", "6"}), kXnnpack);
  CHECK_EQUAL(provider({"0"}), kXnnpack);
  CHECK_EQUAL(provider({"0", ""}), kCpu);
  CHECK_EQUAL(provider({"", "6"}), kCpu);
}

TEST(a_node_that_the_provider_leaves_alone_by_itself_keeps_nothing_from_it) {
  ModelRecipe recipe = gemm({-1, 3}, {});
  recipe.nodes[0].attributes.push_back(attribute("alpha", std::int64_t{0}));  // as a float it is 0
  CHECK_EQUAL(fault_of(recipe), "");
}

TEST(a_circle_of_constants_ends) {
  ModelRecipe recipe = gemm({2, 3}, {});
  recipe.nodes.push_back({"Identity", {"b"}, {"b"}, "circle", "", {}});
  const Guard guard = guard_provider(graph_of(make_model(recipe)), true);
  CHECK_EQUAL(guard.faults.at(0).withheld, "");
  CHECK(guard.whole);
}

}  // namespace
