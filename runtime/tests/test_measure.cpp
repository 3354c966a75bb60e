#include "check.h"
#include "runner/measure.h"
#include "runner/options.h"
#include "runner/report/report.h"

namespace {

using slipway::nearest_rank;
using slipway::summarize;

TEST(percentile_is_the_nearest_rank) {
  const std::vector<double> ten{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  CHECK_EQUAL(nearest_rank(ten, 50), 5.0);
  CHECK_EQUAL(nearest_rank(ten, 51), 6.0);
  CHECK_EQUAL(nearest_rank(ten, 90), 9.0);
  CHECK_EQUAL(nearest_rank(ten, 99), 10.0);
  CHECK_EQUAL(nearest_rank(ten, 100), 10.0);
  CHECK_EQUAL(nearest_rank(ten, 1), 1.0);
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
