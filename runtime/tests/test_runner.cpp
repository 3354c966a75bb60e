#include "check.h"

#include "runner/measure.h"
#include "runner/options.h"
#include "runner/report/json.h"
#include "runner/report/report.h"

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
  CHECK(options.ok());
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
  options_refused({"--model_path=a", "--json="}, "--json needs a value");
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

TEST(summary_sorts) {
  const auto summary = summarize({4, 1, 3, 2});
  CHECK_EQUAL(summary.min, 1.0);
  CHECK_EQUAL(summary.p10, 1.0);
  CHECK_EQUAL(summary.p50, 2.0);
  CHECK_EQUAL(summary.p90, 4.0);
  CHECK_EQUAL(summary.p99, 4.0);
  CHECK_EQUAL(summary.mean, 2.5);
}

TEST(a_result_has_the_instructions_of_each_execution) {
  CHECK(parse_options({"--model_path=a.pte", "--count_instructions"}).value().count_instructions);
  CHECK(!parse_options({"--model_path=a.pte"}).value().count_instructions);
  RunReport report;
  report.measured.latencies_ms = {1, 1, 1};
  CHECK(run_json(report).find("instructions") == std::string::npos);
  CHECK(run_text(report).find("instructions") == std::string::npos);
  report.measured.instructions = {12, 10, 11};
  CHECK(run_json(report).find("\"instructions\":{\"all\":[12,10,11]}") != std::string::npos);
  CHECK(run_text(report).find("10 to 12 instructions in each execution") != std::string::npos);
}

TEST(json_for_people_has_a_line_for_each_member) {
  JsonWriter json(JsonWriter::Form::kLines);
  json.begin_object().members("a", 1).key("b").list(std::vector<int>{2}, [&](int c) { json.object("c", c); });
  CHECK_EQUAL(json.end_object().text(), "{\n  \"a\":1,\n  \"b\":[{\n      \"c\":2}]}");
}

TEST(json_escapes) {
  CHECK_EQUAL(json_escape("plain"), "plain");
  CHECK_EQUAL(json_escape("a\"b\\c"), "a\\\"b\\\\c");
  CHECK_EQUAL(json_escape("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  CHECK_EQUAL(json_escape(std::string("\0\x1f\x7f", 3)), "\\u0000\\u001f\\u007f");
  CHECK_EQUAL(json_escape("größe \xE2\x82\xAC \xF0\x9F\x98\x80"), "größe \xE2\x82\xAC \xF0\x9F\x98\x80");
}

TEST(json_replaces_what_is_not_utf8) {
  const std::string replacement = "\xEF\xBF\xBD";
  CHECK_EQUAL(json_escape("a\xFFz"), "a" + replacement + "z");
  CHECK_EQUAL(json_escape("\xC3"), replacement);
  CHECK_EQUAL(json_escape("\xC0\xAF"), replacement + replacement);                    // overlong
  CHECK_EQUAL(json_escape("\xED\xA0\x80"), replacement + replacement + replacement);  // a surrogate
}

TEST(json_numbers) {
  JsonWriter json;
  json.array(0.0, 1.5, -0.000001, NAN, std::numeric_limits<double>::infinity(),
             std::numeric_limits<std::uint64_t>::max());
  CHECK_EQUAL(json.text(), "[0.000000,1.500000,-0.000001,null,null,18446744073709551615]");
  JsonWriter large;
  large.value(std::numeric_limits<double>::max());
  CHECK_EQUAL(large.text().size(), std::size_t{309 + 7});
}

}  // namespace
