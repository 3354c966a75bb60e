#include "check.h"
#include "runner/options.h"

namespace {

using namespace slipway;

void options_refused(const std::vector<std::string>& words, const std::string& why) {
  const Result<Options> options = parse_options(words);
  CHECK(!options.ok());
  if (!options.ok()) {
    CHECK(options.status().code() == Code::kUsage);
    CHECK_CONTAINS(options.status().message(), why);
  }
}

TEST(options_earlier_runs) {
  const Result<Options> options =
      parse_options({"--model_path=a", "--run_first=prefill=x.npy,y=z.npy", "--run_first", "reset"});
  CHECK(options.ok());
  CHECK_EQUAL(options.value().run_first.size(), std::size_t{2});
  CHECK_EQUAL(options.value().run_first[0].method, "prefill");
  CHECK_EQUAL(options.value().run_first[0].inputs.size(), std::size_t{2});
  CHECK_EQUAL(options.value().run_first[0].inputs[1], "y=z.npy");
  CHECK_EQUAL(options.value().run_first[1].method, "reset");
  CHECK(options.value().run_first[1].inputs.empty());
  options_refused({"--model_path=a", "--run_first==x.npy"}, "empty name");
  options_refused({"--model_path=a", "--run_first=prefill="}, "empty name");
}

TEST(options_json_takes_no_word) {
  const Result<Options> options = parse_options({"--json", "--model_path", "a.pte"});
  CHECK(options.ok() && options.value().json && options.value().json_path.empty());
  options_refused({"--model_path=a", "--json", "out.json"}, "'out.json' is not a flag");
  CHECK(find_json({"--nonsense", "--json"}).wanted);
  CHECK_EQUAL(find_json({"--json=x"}).path, "x");
}

TEST(options_refused) {
  options_refused({}, "--model_path is missing");
  options_refused({"--describe"}, "--model_path is missing");
  options_refused({"--modelpath=a"}, "Unknown flag --modelpath");
  options_refused({"model.pte"}, "'model.pte' is not a flag");
  options_refused({"-h"}, "'-h' is not a flag");
  options_refused({"--model_path"}, "needs a value");
  options_refused({"--model_path="}, "needs a value");
  options_refused({"--model_path=a", "--json="}, "needs a file name");
  options_refused({"--model_path=a", "--describe=yes"}, "takes no value");
  options_refused({"--model_path=a", "--describe", "--capabilities"}, "exclude each other");
  options_refused({"--model_path=a", "--inputs=a,,b"}, "empty name");
  for (const char* count : {"0", "-1", "1.5", "", "x", "1000001", "99999999999999999999"}) {
    options_refused({"--model_path=a", std::string("--num_executions=") + count},
                    "--num_executions wants a whole number");
  }
  for (const char* count : {"--cpu_threads=0", "--cpu_threads=100000", "--ort_threads=1025"}) {
    options_refused({"--model_path=a", count}, "from 1 to 1024");
  }
  CHECK(parse_options({"--model_path=a", "--cpu_threads=1024"}).ok());
  CHECK(parse_options({"--model_path=a", "--warmup=0"}).ok());
}

TEST(options_shapes) {
  const Result<std::vector<Shape>> shapes = parse_shapes("1x3x224x224,8,scalar,2x0");
  CHECK(shapes.ok());
  CHECK_EQUAL(shapes.value().size(), std::size_t{4});
  CHECK_EQUAL(to_text(shapes.value()[0]), "1x3x224x224");
  CHECK_EQUAL(to_text(shapes.value()[1]), "8");
  CHECK_EQUAL(to_text(shapes.value()[2]), "scalar");
  CHECK_EQUAL(to_text(shapes.value()[3]), "2x0");
  for (const char* bad : {"", "1x", "x1", "1,,2", "1X2", "1x-2", "1 x 2", "99999999999"}) {
    CHECK(!parse_shapes(bad).ok());
  }
}

}  // namespace
