#include "provider_table.h"

#include <algorithm>

namespace slipway::onnx {

#define RULE(...)
#define TEXT(name, text)                   \
  const std::string& name() {              \
    static const std::string value = text; \
    return value;                          \
  }
#define LIST(name, ...)                                       \
  const std::vector<std::string>& name() {                    \
    static const std::vector<std::string> value{__VA_ARGS__}; \
    return value;                                             \
  }
#include "provider_rules.inc"
#undef RULE
#undef TEXT
#undef LIST

#define RULE(...) {__VA_ARGS__},
#define TEXT(name, text)
#define LIST(name, ...)
const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
#include "provider_rules.inc"
  };
  return table;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace slipway::onnx
