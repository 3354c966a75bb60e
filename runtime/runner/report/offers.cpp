#include "runner/report/offers.h"

#include <string>
#include <vector>

#include "runner/report/report.h"

namespace slipway {
namespace {

constexpr char kRebuild[] =
    "this runner was linked for other programs: ./inv build --ops-from with this one too, or without "
    "--ops-from";

}  // namespace

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
