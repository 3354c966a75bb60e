#include <time.h>

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

// An int8 model that ONNX Runtime first refuses, on x86 processors without VNNI: a second session is made for
// it.
#if defined(__x86_64__)

namespace {

// How often ONNX Runtime has asked for the time of day, which it does for a profile's name.
time_t named = 0;

}  // namespace

// In place of the C library's, for the libraries of this program too: two profiles have two names, however
// fast their sessions follow each other.
extern "C" [[gnu::visibility("default")]] struct tm* localtime_r(const time_t* at,
                                                                 struct tm* parts) noexcept {
  const time_t later = *at + named++;
  return ::gmtime_r(&later, parts);
}

namespace {

// Of int8, the type with number 3.
Message bytes(const std::string& name, const std::vector<std::int64_t>& shape, const std::string& data) {
  Message tensor;
  for (const std::int64_t size : shape) {
    tensor.number(1, static_cast<std::uint64_t>(size));
  }
  return tensor.number(2, 3).text(8, name).text(9, data);
}

TEST(engine_reads_the_profile_of_the_session_that_ran) {
  // With weights this large sums of 16 bits could overflow, and only then the first session is refused.
  ModelRecipe recipe;
  recipe.nodes = {
      {"QuantizeLinear", {"x", "one", "zero"}, {"q"}, "first", ""},
      {"QLinearMatMul", {"q", "one", "zero", "m", "one", "zero", "one", "zero"}, {"p"}, "product", ""},
      {"DequantizeLinear", {"p", "one", "zero"}, {"y"}, "last", ""}};
  recipe.constants = {constant("one", {}, 1), bytes("zero", {}, std::string(1, '\0')),
                      bytes("m", {4, 4}, std::string(16, '\x7f'))};
  recipe.inputs = {value("x", {1, 4})};
  recipe.outputs = {value("y", {1, 4})};
  const TemporaryFolder folder;
  const std::string path = folder.write_text("a.onnx", make_model(recipe));
  // Which of two files a folder lists first is chance.
  for (int i = 0; i < 8; ++i) {
    const auto running = make_engine(nullptr);
    CHECK(running->configure({}).ok());
    const time_t before = named;
    CHECK(running->load({path, "", "forward", {}, false}).ok());
    CHECK(named > before);
    CHECK(running->set_inputs({ones(DType::kFloat32, {1, 4}, 4)}).ok() && running->execute().ok());
    CHECK_EQUAL(running->placement().nodes.size(), std::size_t{3});
  }
}

}  // namespace

#endif
