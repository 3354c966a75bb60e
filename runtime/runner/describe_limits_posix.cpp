#include <sys/resource.h>

#include <algorithm>

#include "runner/describe_limits.h"

namespace slipway {
namespace {

// Sets a limit, unless the one that was there first is lower. The hard one stays, so that another call can
// allow more.
class Limit {
 public:
  explicit Limit(decltype(RLIMIT_CPU) resource) : resource_(resource) {
    known_ = ::getrlimit(resource_, &first_) == 0;
  }
  void set(std::uint64_t most) const {
    if (known_) {
      struct rlimit limit = first_;
      limit.rlim_cur =
          std::min(first_.rlim_cur, static_cast<rlim_t>(std::min<std::uint64_t>(most, RLIM_INFINITY - 1)));
      ::setrlimit(resource_, &limit);
    }
  }

 private:
  decltype(RLIMIT_CPU) resource_;
  struct rlimit first_ = {};
  bool known_ = false;
};

}  // namespace

void limit_describing(std::uint64_t bytes) {
  static const Limit time(RLIMIT_CPU);
  time.set(kDescribeSeconds);
#ifdef SLIPWAY_SANITIZE
  static_cast<void>(bytes);  // the sanitizers' own memory is beyond all bounds
#else
  static const Limit memory(RLIMIT_DATA);
  memory.set(bytes);
#endif
}

}  // namespace slipway
