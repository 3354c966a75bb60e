#include <sys/resource.h>
#include <sys/sysctl.h>

#include <cstddef>

#include "base/device_memory.h"

namespace slipway {

// macOS compresses and swaps what is not used: what it has in all is the only bound that holds.
std::optional<MemoryLeft> memory_left_below(const std::string& /*root*/) {
  std::uint64_t bytes = 0;
  std::size_t size = sizeof(bytes);
  if (::sysctlbyname("hw.memsize", &bytes, &size, nullptr, 0) != 0) {
    return {};
  }
  return MemoryLeft{bytes, "this device"};
}

std::optional<MemoryLeft> memory_left() {
  std::optional<MemoryLeft> least = memory_left_below("");
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      (!least || limit.rlim_cur < least->bytes)) {
    least = MemoryLeft{limit.rlim_cur, "ulimit -v"};
  }
  return least;
}

}  // namespace slipway
