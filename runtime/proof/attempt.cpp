#include "attempt.h"

#include <algorithm>
#include <cstring>

namespace proof {

namespace {

constexpr std::uint8_t kUntouched = 0xA5;
constexpr std::size_t kGuard = 64;

struct DeleteSubgraph {
  void operator()(xnn_subgraph* subgraph) const { xnn_delete_subgraph(subgraph); }
};

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

}  // namespace proof
