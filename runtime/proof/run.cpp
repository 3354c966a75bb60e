#include "run.h"

#include <pthreadpool.h>
#include <xnnpack.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "problem.h"

namespace proof {
namespace {

// A problem given to XNNPACK: created, shaped and set up, to be invoked any number of times.
class Attempt {
 public:
  // With one thread there is no pool, as most programs have it.
  Attempt(const Problem& problem, std::size_t threads);

  // Success, or how far it came.
  xnn_status status() const { return status_; }
  const std::string& stage() const { return stage_; }

  xnn_status Invoke();
  const std::uint8_t* output() const { return output_.data(); }
  // Whether nothing was written behind the output.
  bool EndIsIntact() const;
  // What XNNPACK calls the operators it chose.
  const std::vector<std::string>& operators() const { return operators_; }

 private:
  template <auto* destroy>
  struct Destroy {
    template <typename T>
    void operator()(T* handle) const {
      destroy(handle);
    }
  };

  bool Succeeded(xnn_status status, const char* stage);
  void Create(const Problem& problem, std::size_t threads);
  void ReadOperators();

  xnn_status status_ = xnn_status_success;
  std::string stage_;
  std::vector<std::uint8_t> input_, output_;
  std::size_t output_bytes_;
  std::vector<std::string> operators_;
  std::unique_ptr<pthreadpool, Destroy<pthreadpool_destroy>> pool_;
  std::unique_ptr<xnn_runtime, Destroy<xnn_delete_runtime>> runtime_;
};

constexpr std::uint8_t kUntouched = 0xA5;
constexpr std::size_t kGuard = 64;

struct DeleteSubgraph {
  void operator()(xnn_subgraph* subgraph) const { xnn_delete_subgraph(subgraph); }
};

Attempt::Attempt(const Problem& problem, std::size_t threads)
    : input_(problem.input), output_bytes_(OutputBytes(problem)) {
  output_.assign(output_bytes_ + kGuard, kUntouched);
  Create(problem, threads);
}

bool Attempt::Succeeded(xnn_status status, const char* stage) {
  status_ = status;
  stage_ = stage;
  return status == xnn_status_success;
}

void Attempt::Create(const Problem& problem, std::size_t threads) {
  if (threads > 1) {
    pool_.reset(pthreadpool_create(threads));
    if (!pool_) {
      status_ = xnn_status_out_of_memory;
      stage_ = "starting threads";
      return;
    }
  }
  xnn_subgraph_t created = nullptr;
  if (!Succeeded(xnn_create_subgraph(2, 0, &created), "creating the subgraph")) return;
  const std::unique_ptr<xnn_subgraph, DeleteSubgraph> subgraph(created);
  if (!Succeeded(problem.define(subgraph.get()), "defining the subgraph")) return;
  xnn_runtime_t runtime = nullptr;
  const std::uint32_t flags = problem.runtime_flags | XNN_FLAG_BASIC_PROFILING;
  if (!Succeeded(xnn_create_runtime_v4(subgraph.get(), nullptr, nullptr, pool_.get(), flags, &runtime),
                 "creating the runtime")) {
    return;
  }
  runtime_.reset(runtime);
  if (!Succeeded(xnn_reshape_runtime(runtime), "shaping the runtime")) return;
  const xnn_external_value ends[] = {{kInput, input_.data()}, {kOutput, output_.data()}};
  if (!Succeeded(xnn_setup_runtime_v2(runtime, 2, ends), "setting the runtime up")) return;
  ReadOperators();
}

xnn_status Attempt::Invoke() {
  Succeeded(xnn_invoke_runtime(runtime_.get()), "running");
  return status_;
}

bool Attempt::EndIsIntact() const {
  return std::all_of(output_.begin() + static_cast<std::ptrdiff_t>(output_bytes_), output_.end(),
                     [](std::uint8_t byte) { return byte == kUntouched; });
}

void Attempt::ReadOperators() {
  std::size_t size = 0;
  xnn_get_runtime_profiling_info(runtime_.get(), xnn_profile_info_operator_name, 0, nullptr, &size);
  std::vector<char> names(size);
  if (xnn_get_runtime_profiling_info(runtime_.get(), xnn_profile_info_operator_name, size, names.data(),
                                     &size) != xnn_status_success) {
    return;
  }
  for (const char* name = names.data(); name < names.data() + names.size(); name += std::strlen(name) + 1) {
    operators_.emplace_back(name);
  }
}

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

const char* StatusName(xnn_status status) {
  switch (status) {
    case xnn_status_success:
      return "success";
    case xnn_status_uninitialized:
      return "uninitialized";
    case xnn_status_invalid_parameter:
      return "invalid parameter";
    case xnn_status_invalid_state:
      return "invalid state";
    case xnn_status_unsupported_parameter:
      return "unsupported parameter";
    case xnn_status_unsupported_hardware:
      return "unsupported hardware";
    case xnn_status_out_of_memory:
      return "out of memory";
    case xnn_status_reallocation_required:
      return "reallocation required";
    case xnn_status_deprecated:
      return "deprecated";
  }
  return "unknown";
}

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
