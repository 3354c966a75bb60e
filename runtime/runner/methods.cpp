#include "runner/methods.h"

#include <algorithm>
#include <cstdint>

#include "base/device_memory.h"

namespace slipway {

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

}  // namespace slipway
