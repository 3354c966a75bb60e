#include "check.h"
#include "model_builder.h"
#include "model_file.h"
#include "temporary_folder.h"

namespace {

using namespace slipway;
using namespace slipway::onnx;

Result<Graph> read(const std::string& bytes) {
  return read_onnx(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), "a.onnx");
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
  const MethodInfo method = method_of(read);
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
