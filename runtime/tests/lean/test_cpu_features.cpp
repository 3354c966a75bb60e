// Names of features of the processor. What leaving them unused does to kernels, tests/integration/
// test_cpu_features.py sees: it cannot be undone in a process.

#include "check.h"
#include "lean/xnnpack/cpu_features.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

TEST(cpu_features_by_any_name) {
  const Result<std::vector<std::string>> known =
      known_features({"sse4.1", "SSE4_1", "asimddp", "avx512vnni", "avx512_vnni", "avx512vl"});
  CHECK(known.ok());
  CHECK(known.value() == std::vector<std::string>({"sse4_1", "dotprod", "avx512_vnni", "avx512bw"}));
  CHECK(known_features({}).ok() && known_features({}).value().empty());
}

TEST(cpu_features_with_the_nearest_name) {
  const std::pair<const char*, const char*> wrong[] = {
      {"sme3", "-sme"}, {"dotprodd", "-dotprod"}, {"avx513f", "-avx512f"}, {"i9mm", "-i8mm"}, {"", "-"}};
  for (const auto& [name, near_one] : wrong) {
    const Result<std::vector<std::string>> known = known_features({name});
    CHECK(!known.ok());
    if (!known.ok()) {
      CHECK(known.status().code() == Code::kUsage);
      CHECK_CONTAINS(known.status().message(), std::string("'") + name + "'");
      CHECK_CONTAINS(known.status().fix(), near_one);
    }
  }
}

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
