#include "program_builder.h"
#include "runner/files/npy.h"
#include "whole_run.h"

namespace {

using namespace slipway;

std::unique_ptr<Engine> engine() {
  return make_engine(nullptr);
}

TEST(engine_executes) {
  const TemporaryFolder folder;
  const auto running = engine();
  const auto threads = running->set_threads(2);
  CHECK(threads.ok() && threads.value() == 2);
  CHECK(running->load({folder.write("a.pte", make_program()), "", "forward", {}, true}).ok());
  const std::vector<Tensor> inputs{ones(DType::kFloat32, {2, 3}, 6)};
  for (int i = 0; i < 3; ++i) {
    CHECK(running->set_inputs(inputs).ok());
    CHECK(running->execute().ok());
  }
  const auto outputs = running->outputs();
  CHECK(outputs.ok() && outputs.value().size() == 1);
  CHECK((floats(outputs.value().at(0)) == std::vector<float>{2, 3, 4, 5, 6, 7}));
  const auto profile = running->profile();
  CHECK(profile.ok() && profile.value().size() > 100);
}

TEST(engine_reports_what_it_cannot_load) {
  const TemporaryFolder folder;
  CHECK(engine()->load({folder.file("none.pte"), "", "forward", {}, false}).code() == Code::kFile);
  const std::string path = folder.write("a.pte", make_program());
  CHECK(!engine()->load({path, "", "backward", {}, false}).ok());
  ProgramRecipe recipe;
  recipe.overload = "nonsense";
  CHECK(engine()->load({folder.write("b.pte", make_program(recipe)), "", "forward", {}, false}).code() ==
        Code::kMissingOperator);
}

TEST(runner_runs_and_writes_outputs) {
  const TemporaryFolder folder;
  const std::string model = "--model_path=" + folder.write("a.pte", make_program());
  folder.write("x.npy", format_npy(ones(DType::kFloat32, {2, 3}, 6)));
  const Outcome outcome =
      run(folder, {model, "--inputs=" + folder.file("x.npy"), "--output_file=" + folder.file("y"),
                   "--num_executions=4", "--warmup=2", "--cpu_threads=1"});
  CHECK_EQUAL(outcome.code, 0);
  CHECK_CONTAINS(outcome.json, R"("count":4,"warmup":2)");
  CHECK_CONTAINS(outcome.json, R"("threads":1)");
  CHECK_CONTAINS(outcome.json, R"("dtype":"float32","shape":[2,3])");
  const std::string file = folder.read("y0.npy");
  const auto output = parse_npy(reinterpret_cast<const std::uint8_t*>(file.data()), file.size(), "y0.npy");
  CHECK(output.ok() && (floats(output.value()) == std::vector<float>{2, 3, 4, 5, 6, 7}));
}

}  // namespace
