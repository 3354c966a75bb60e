#include "program_builder.h"
#include "runner/files/npy.h"
#include "whole_run.h"

namespace {

using namespace slipway;

std::unique_ptr<Engine> engine() {
  return make_engine(nullptr);
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(engine_offers_kernels_and_backends) {
  const Capabilities capabilities = engine()->capabilities();
  CHECK(has(capabilities.backends, "XnnpackBackend"));
  CHECK(has(capabilities.operators, "aten::add.out"));
  CHECK(has(capabilities.operators, "aten::native_layer_norm.out"));
  CHECK(std::is_sorted(capabilities.operators.begin(), capabilities.operators.end()));
  CHECK_EQUAL(engine()->info().name, "executorch");
}

TEST(engine_describes) {
  const TemporaryFolder folder;
  ProgramRecipe recipe;
  recipe.backend = "NoSuchBackend";
  const auto program = engine()->describe(folder.write("a.pte", make_program(recipe)));
  CHECK(program.ok());
  const MethodInfo& method = program.value().methods.at(0);
  CHECK_EQUAL(method.name, "forward");
  CHECK_EQUAL(method.inputs.size(), std::size_t{1});
  CHECK_EQUAL(to_text(method.inputs.at(0).shape), "2x3");
  CHECK(method.inputs.at(0).dtype == DType::kFloat32);
  CHECK(has(method.operators, "aten::add.out"));
  CHECK(has(method.backends, "NoSuchBackend"));
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

TEST(runner_exit_codes) {
  const TemporaryFolder folder;
  const std::string model = "--model_path=" + folder.write("a.pte", make_program());
  CHECK_EQUAL(run(folder, {"--no_such_flag"}).code, 2);
  CHECK_EQUAL(run(folder, {model, "--method_name=backward"}).code, 2);
  CHECK_EQUAL(run(folder, {"--model_path=" + folder.file("none.pte")}).code, 3);
  ProgramRecipe op;
  op.operator_name = "custom::mystery";
  const std::string strange = "--model_path=" + folder.write("op.pte", make_program(op));
  const Outcome missing = run(folder, {strange});
  CHECK_EQUAL(missing.code, 4);
  CHECK_CONTAINS(missing.json, R"("kind":"missing-operator","exit_code":4)");
  CHECK_CONTAINS(missing.json, R"("names":["custom::mystery.out"])");
  ProgramRecipe backend;
  backend.backend = "NoSuchBackend";
  const Outcome dropped = run(folder, {"--model_path=" + folder.write("backend.pte", make_program(backend))});
  CHECK_EQUAL(dropped.code, 5);
  CHECK_CONTAINS(dropped.json, R"("names":["NoSuchBackend"])");
  CHECK_EQUAL(run(folder, {model, "--input_shapes=3x2"}).code, 6);
  CHECK_EQUAL(run(folder, {model, "--output_file=" + folder.file("none/y")}).code, 8);
  const Outcome described = run(folder, {strange, "--describe"});
  CHECK_EQUAL(described.code, 0);
  CHECK_CONTAINS(described.json, R"("missing_operators":["custom::mystery.out"])");
}

}  // namespace
