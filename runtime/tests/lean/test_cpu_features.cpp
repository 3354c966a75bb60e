// Names of features of the processor. What leaving them unused does to kernels, tests/integration/
// test_cpu_features.py sees: it cannot be undone in a process.

#include "check.h"
#include "lean/xnnpack/cpu_features.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

TEST(cpu_features_are_found_by_their_own_names) {
  const std::vector<std::string> all = all_features();
  CHECK(all.size() > 20);
  for (const std::string& name : all) {
    const Result<std::vector<std::string>> known = known_features({name});
    // Those of every processor here are refused, and named.
    CHECK(known.ok() ? known.value() == std::vector<std::string>({name})
                     : known.status().message().find(name) != std::string::npos);
  }
}

}  // namespace
