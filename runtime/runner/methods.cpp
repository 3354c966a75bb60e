#include "runner/methods.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/platform.h"
#include "runner/report/report.h"

namespace slipway {
namespace {

constexpr char kRebuild[] =
    "this runner was linked for other programs: ./inv build --ops-from with this one too, or without "
    "--ops-from";

}  // namespace

Result<MethodInfo> find_method(const Options& options, const std::string& wanted,
                               const ProgramInfo& program) {
  std::string names;
  for (const MethodInfo& method : program.methods) {
    if (method.name == wanted) {
      return method;
    }
    names += (names.empty() ? "" : ", ") + method.name;
  }
  return Status(Code::kUsage, options.model_path + " has no method '" + wanted + "'.",
                "give --method_name one of: " + names, {wanted});
}

std::vector<std::string> also_loaded(const Options& options) {
  std::vector<std::string> names = options.also_load;
  for (const EarlierRun& earlier : options.run_first) {
    const bool known = earlier.method == options.method_name ||
                       std::find(names.begin(), names.end(), earlier.method) != names.end();
    if (!known) {
      names.push_back(earlier.method);
    }
  }
  return names;
}

Status check_planned(const Options& options, const ProgramInfo& program) {
  std::vector<std::string> names = also_loaded(options);
  names.push_back(options.method_name);
  std::uint64_t all = 0;
  std::string list;
  for (const std::string& name : names) {
    const Result<MethodInfo> method = find_method(options, name, program);
    if (method.ok()) {
      all += std::min(method.value().planned_bytes, UINT64_MAX - all);
      list += (list.empty() ? "" : ", ") + name;
    }
  }
  return check_room(all, "what " + list + " has planned");
}

Status check_offers(const Options& options, const MethodInfo& method, const Capabilities& capabilities) {
  const auto list = [](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
      text += (text.empty() ? "" : ", ") + name;
    }
    return text;
  };
  const std::vector<std::string> backends = missing(method.backends, capabilities.backends);
  if (!backends.empty()) {
    return {
        Code::kMissingBackend,
        list(backends) + " is not registered: the linker dropped it, or this runner was built without it.",
        capabilities.selective ? kRebuild
                               : "build the bundle again, or export " + options.model_path +
                                     " for the backends this runner has: " +
                                     (capabilities.backends.empty() ? "none" : list(capabilities.backends)),
        backends};
  }
  const std::vector<std::string> operators = missing_operators(method, capabilities, {});
  if (!operators.empty()) {
    return {Code::kMissingOperator,
            "Method " + method.name + " needs " + std::to_string(operators.size()) +
                (operators.size() == 1 ? " operator" : " operators") +
                " this runner does not have: " + list(operators) + ".",
            capabilities.selective ? kRebuild
                                   : "build the bundle with a kernel library that holds them, or export the "
                                     "model so that a backend takes "
                                     "them over",
            operators};
  }
  if (!method.external_weights.empty() && options.data_path.empty()) {
    return {Code::kFile,
            "Method " + method.name + " has " + std::to_string(method.external_weights.size()) +
                " weights stored apart from the program: " + list(method.external_weights) + ".",
            "give the .ptd file that was exported with it: --data_path FILE.ptd", method.external_weights};
  }
  return {};
}

}  // namespace slipway
