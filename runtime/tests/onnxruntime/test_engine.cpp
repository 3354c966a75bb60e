#include "check.h"
#include "model_builder.h"
#include "runner/files/npy.h"
#include "runner/runner.h"
#include "slipway/engine.h"
#include "temporary_folder.h"

namespace {

using namespace slipway;

// The whole program, from words to exit code.
struct Outcome {
  int code;
  std::string json;
};

Outcome run(const TemporaryFolder& folder, std::vector<std::string> words) {
  words.push_back("--json=" + folder.file("result.json"));
  const int code = run_command(words);
  return {code, folder.read("result.json")};
}

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
  return values;
}

std::unique_ptr<Engine> engine(const EngineOptions& options = {}) {
  auto made = make_engine(nullptr);
  CHECK(made->configure(options).ok());
  return made;
}

TEST(engine_offers_both_providers) {
  const Capabilities capabilities = engine()->capabilities();
  CHECK(capabilities.backends ==
        (std::vector<std::string>{"CPUExecutionProvider", "XnnpackExecutionProvider"}));
  CHECK(!capabilities.lists_operators);
  CHECK_EQUAL(engine()->info().name, "onnxruntime");
}

TEST(engine_executes_on_both_providers) {
  const TemporaryFolder folder;
  const std::string path = folder.write_text("a.onnx", make_model(conv_model()));
  for (const std::string provider : {"xnnpack", "cpu"}) {
    EngineOptions options;
    options.provider = provider;
    const auto running = engine(options);
    CHECK(running->set_threads(1).ok());
    CHECK(running->load({path, "", "forward", {}, false}).ok());
    const std::vector<Tensor> inputs{ones(DType::kFloat32, {1, 1, 4, 4}, 16)};
    CHECK(running->set_inputs(inputs).ok());
    CHECK(running->execute().ok());
    const auto outputs = running->outputs();
    CHECK(outputs.ok() && outputs.value().size() == 1);
    CHECK(floats(outputs.value().at(0)) == std::vector<float>(8, 9.5F));
    CHECK_EQUAL(to_text(outputs.value().at(0).shape), "1x8");
    const Placement placement = running->placement();
    const bool xnnpack =
        std::any_of(placement.nodes.begin(), placement.nodes.end(), [](const NodeInfo& node) {
          return node.op == "Conv" && node.provider == "XnnpackExecutionProvider";
        });
    CHECK_EQUAL(xnnpack, provider == "xnnpack");
  }
}

TEST(runner_takes_any_batch_where_the_model_does) {
  const TemporaryFolder folder;
  ModelRecipe recipe = conv_model();
  recipe.inputs = {value("x", {-1, 1, 4, 4})};
  recipe.outputs = {value("y", {-1, 8})};
  const std::string model = "--model_path=" + folder.write_text("a.onnx", make_model(recipe));
  CHECK_CONTAINS(run(folder, {model, "--input_shapes=3x1x4x4"}).json, R"("dtype":"float32","shape":[3,8])");
  // What the model fixes is not free: that is seen before anything runs.
  const Outcome wrong = run(folder, {model, "--input_shapes=3x2x4x4"});
  CHECK_EQUAL(wrong.code, 6);
  CHECK_CONTAINS(wrong.json, "Input 0: expected float32 ?x1x4x4, given float32 3x2x4x4.");
  CHECK_CONTAINS(run(folder, {model, "--describe"}).json, R"("ranges":[[0,null],[1,1],[4,4],[4,4]])");
}

}  // namespace
