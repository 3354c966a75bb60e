#include "check.h"
#include "model_builder.h"
#include "runner/runner.h"
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
