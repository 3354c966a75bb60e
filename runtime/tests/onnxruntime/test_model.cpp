// Models as files, where nodes ran, and which models are kept from the XNNPACK provider. All operators are
// run in such forms: tests/integration/test_onnx.py.
#include "check.h"
#include "model_builder.h"
#include "provider.h"
#include "temporary_folder.h"

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

Result<Graph> read(const std::string& bytes) {
  return read_onnx(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "a.onnx");
}

Graph graph_of(const std::string& bytes) {
  return read(bytes).value();
}

ModelRecipe gemm(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& c) {
  ModelRecipe recipe;
  recipe.nodes = {{"Gemm", {"x", "b"}, {"y"}, "fc", ""}};
  recipe.inputs = {value("x", a)};
  recipe.outputs = {value("y", {-1, 5})};
  recipe.constants = {constant("b", {3, 5}, 1)};
  if (!c.empty()) {
    recipe.nodes[0].inputs.push_back("c");
    recipe.constants.push_back(constant("c", c, 1));
  }
  return recipe;
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
  Session session;
  session.cores = 4;
  const Placement placement = placement_of(events, session);
  CHECK_EQUAL(placement.nodes.size(), std::size_t{2});
  CHECK_EQUAL(placement.hints.size(), std::size_t{1});
  CHECK_CONTAINS(placement.hints.at(0), "--ort_threads 4");
  // Nothing to suggest when the pool is as large as it can be, or no provider was asked for.
  session.ort_threads = 4;
  CHECK(placement_of(events, session).hints.empty());
  CHECK(placement_of(events, {false, {}, 1, 4}).hints.empty());
  session.shapes = "1x1x4x4";
  session.open = true;
  const Placement open = placement_of(events, session);
  CHECK_EQUAL(open.hints.size(), std::size_t{1});
  CHECK_CONTAINS(open.hints.at(0), "1 node of operators that XNNPACK has in fixed sizes");
  session.open = false;
  session.fixed = true;
  CHECK_CONTAINS(placement_of(events, session).hints.at(0),
                 "fixed for this session by --input_shapes 1x1x4x4");
}

TEST(sizes_of_other_values_follow_the_inputs_unless_data_decides) {
  ModelRecipe recipe;
  recipe.nodes = {{"Relu", {"x"}, {"r"}, "relu", ""}, {"Gemm", {"r", "b", "c"}, {"y"}, "fc", ""}};
  recipe.inputs = {value("x", {-1, 3})};
  recipe.outputs = {value("y", {-1, 5})};
  recipe.constants = {constant("b", {3, 5}, 1), constant("c", {5}, 1)};
  Graph graph = graph_of(make_model(recipe));
  CHECK(has_open_inputs(graph));
  CHECK_EQUAL(kept_away(graph).size(), std::size_t{1});
  CHECK(fix_sizes({{2, 3}}, &graph) == (NamedSizes{{"N", 2}}));
  CHECK(graph.value("x")->shape == (Shape{2, 3}) && graph.value("y")->shape == (Shape{2, 5}));
  CHECK(!has_open_inputs(graph) && kept_away(graph).empty());
  CHECK(fix_sizes({{2, 3}}, &graph).empty());
  recipe.nodes.at(0).op = "Compress";
  recipe.values = {value("r", {-1, 3}, "kept")};
  graph = graph_of(make_model(recipe));
  fix_sizes({{2, 3}}, &graph);
  CHECK_EQUAL(kept_away(graph).size(), std::size_t{1});
}

TEST(a_fault_keeps_the_model_from_the_provider) {
  CHECK(kept_away(graph_of(make_model(gemm({2, 3}, {5})))).empty());
  const auto faults = kept_away(graph_of(make_model(gemm({2, 3}, {}))));
  CHECK_EQUAL(faults.size(), std::size_t{1});
  CHECK_EQUAL(
      faults.at(0),
      "the model was kept from the XNNPACK provider: Gemm fc: it has no C: the XNNPACK provider crashes");
  Graph half = graph_of(make_model(conv_model()));
  CHECK(kept_away(half).empty());
  half.values["x"].dtype = DType::kFloat16;
  CHECK_CONTAINS(kept_away(half).at(0), "float16");
}

TEST(onnx_file_is_read) {
  const auto graph = read(make_model(conv_model()));
  CHECK(graph.ok());
  const Graph& read = graph.value();
  CHECK_EQUAL(read.ir_version, 8);
  CHECK_EQUAL(read.opset(""), 17);
  CHECK_EQUAL(read.nodes.size(), std::size_t{3});
  CHECK_EQUAL(read.nodes.at(0).op, "Conv");
  CHECK(read.inputs == std::vector<std::string>{"x"});
  CHECK_EQUAL(to_text(read.value("w")->shape), "2x1x3x3");
  CHECK_EQUAL(read.constants.size(), std::size_t{2});
  const MethodInfo method = program_info(read, 0).methods.at(0);
  CHECK(method.operators == (std::vector<std::string>{"Conv", "Flatten", "Relu"}));
  CHECK(method.inputs.at(0).dtype == DType::kFloat32);
}

// A file cut anywhere either fails or lacks nothing: it must not crash or pass for a whole one.
TEST(onnx_file_cut_short_is_refused) {
  const std::string whole = make_model(conv_model());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto graph = read(whole.substr(0, size));
    CHECK(!graph.ok() && graph.status().code() == Code::kFile);
  }
}

TEST(onnx_file_with_any_byte_changed_is_read_or_refused) {
  const std::string whole = make_model(conv_model());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(~changed[i]);
    const auto graph = read(changed);
    CHECK(graph.ok() || graph.status().code() == Code::kFile);
  }
}

TEST(other_files_are_no_models) {
  CHECK(!read("").ok());
  CHECK(!read("PK\x03\x04 something else entirely").ok());
  const TemporaryFolder folder;
  CHECK(read_model(folder.file("none.onnx")).status().code() == Code::kFile);
  const std::string ort = folder.write_text("a.onnx", std::string("\x08\0\0\0ORTM", 8));
  CHECK(is_ort(ort) && read_model(ort).status().code() == Code::kFile);
}

TEST(an_initializer_that_is_an_input_is_no_constant) {
  ModelRecipe recipe = conv_model();
  recipe.inputs.push_back(value("w", {2, 1, 3, 3}));
  const auto graph = read(make_model(recipe));
  CHECK(graph.ok() && graph.value().inputs == std::vector<std::string>{"x"});
  CHECK_EQUAL(graph.value().constants.count("w"), std::size_t{0});
  recipe.ir_version = 3;  // up to then all initializers had to be inputs
  CHECK_EQUAL(read(make_model(recipe)).value().constants.count("w"), std::size_t{1});
}

TEST(what_constants_alone_give_is_constant) {
  ModelRecipe recipe = conv_model();
  recipe.nodes.insert(recipe.nodes.begin(), {"Identity", {"v"}, {"w"}, "id", ""});
  recipe.constants = {constant("v", {2, 1, 3, 3}, 1), constant("b", {2}, 0)};
  const auto graph = read(make_model(recipe));
  CHECK_EQUAL(graph.value().constants.count("w"), std::size_t{1});
}

}  // namespace
