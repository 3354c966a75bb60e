#include "run.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "attempt.h"
#include "sampler.h"

namespace proof {

namespace {

bool Names(const std::vector<std::string>& operators, const std::string& wanted) {
  return std::any_of(operators.begin(), operators.end(),
                     [&](const std::string& name) { return name.rfind(wanted, 0) == 0; });
}

std::string Unexpected(const Attempt& attempt, const Expectation& expected) {
  const std::string said = std::string("XNNPACK says '") + StatusName(attempt.status()) + "' when " +
                           attempt.stage() + ", but this CPU should give '";
  return said + StatusName(expected.status) + "'";
}

std::string Wrong(const Problem& problem, const Error& error) {
  char text[160];
  std::snprintf(text, sizeof text, "output %zu is %.9g and should be %.9g", error.index, error.got,
                problem.expected[error.index]);
  return text;
}

// Why the attempt is no pass; empty when it is one.
std::string Judge(Attempt* attempt, const Problem& problem, const Expectation& expected, Result* result) {
  if (attempt->status() != expected.status) return Unexpected(*attempt, expected);
  if (attempt->status() != xnn_status_success) return "";
  if (attempt->Invoke() != xnn_status_success) return Unexpected(*attempt, expected);
  result->operators = attempt->operators();
  const Error error = ErrorOf(problem, attempt->output());
  result->max_error = std::max(result->max_error, error.most);
  if (error.most > problem.tolerance) return Wrong(problem, error);
  if (!attempt->EndIsIntact()) return "something was written behind the output";
  if (!Names(attempt->operators(), expected.op)) {
    return "XNNPACK chose other operators than this CPU's '" + expected.op + "'";
  }
  return "";
}

void Sample(Attempt* attempt, unsigned sample_ms, Result* result) {
  Sampler sampler;
  const std::clock_t end =
      std::clock() + static_cast<std::clock_t>(static_cast<double>(sample_ms) / 1000 * CLOCKS_PER_SEC);
  while (std::clock() < end && attempt->Invoke() == xnn_status_success) {
  }
  result->samples = sampler.Stop();
}

}  // namespace

const char* OutcomeName(Outcome outcome) {
  if (outcome == Outcome::kPassed) return "passed";
  return outcome == Outcome::kFailed ? "failed" : "unsupported";
}

Result RunCase(const Case& wanted, const Cpu& cpu, unsigned sample_ms) {
  const Problem problem = wanted.make();
  const Expectation expected = wanted.expect(cpu);
  Result result;
  result.name = wanted.name;
  result.op = problem.op;
  result.dtype = problem.dtype;
  result.shape = problem.shape;
  result.tolerance = problem.tolerance;
  for (const std::size_t threads : {1, 2}) {
    Attempt attempt(problem, threads);
    result.why = Judge(&attempt, problem, expected, &result);
    result.status = StatusName(attempt.status());
    if (!result.why.empty()) {
      result.why += threads > 1 ? " (2 threads)" : "";
      return result;
    }
    if (threads == 1 && sample_ms > 0 && expected.status == xnn_status_success) {
      Sample(&attempt, sample_ms, &result);
    }
  }
  const bool refused = expected.status != xnn_status_success;
  result.outcome = refused ? Outcome::kUnsupported : Outcome::kPassed;
  if (refused) result.why = expected.why;
  return result;
}

}  // namespace proof
