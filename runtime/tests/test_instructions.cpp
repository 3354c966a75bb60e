#include "check.h"
#include "runner/measure.h"
#include "runner/options.h"
#include "runner/report/report.h"

namespace {

using slipway::InstructionCounter;

// Real processors and other emulators answer nothing; tests/integration has a machine that does.
TEST(nothing_is_counted_where_nobody_answers) {
  InstructionCounter counter;
  CHECK(!counter.counts());
  counter.begin();
  CHECK_EQUAL(counter.end(), std::uint64_t{0});
}

TEST(a_result_has_the_instructions_of_each_execution) {
  CHECK(slipway::parse_options({"--model_path=a.pte", "--count_instructions"}).value().count_instructions);
  CHECK(!slipway::parse_options({"--model_path=a.pte"}).value().count_instructions);
  slipway::RunReport report;
  report.measured.latencies_ms = {1, 1, 1};
  CHECK(slipway::run_json(report).find("instructions") == std::string::npos);
  CHECK(slipway::run_text(report).find("instructions") == std::string::npos);
  report.measured.instructions = {12, 10, 11};
  CHECK(slipway::run_json(report).find("\"instructions\":{\"all\":[12,10,11]}") != std::string::npos);
  CHECK(slipway::run_text(report).find("10 to 12 instructions in each execution") != std::string::npos);
}

}  // namespace
