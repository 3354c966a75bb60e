#include <sys/sysctl.h>

#include "runner/roofline/caches.h"

namespace slipway {
namespace {

std::uint64_t sysctl_number(const std::string& key) {
  std::uint64_t value = 0;  // of 32 or 64 bits, little-endian
  std::size_t size = sizeof(value);
  return ::sysctlbyname(key.c_str(), &value, &size, nullptr, 0) == 0 ? value : 0;
}

}  // namespace

// An Intel Mac has a third level, one of Apple's own processors a second one for each cluster. The cache that
// these share with the graphics is not reported.
std::uint64_t last_level_caches(const std::string& /*root*/) {
  const std::uint64_t third = sysctl_number("hw.l3cachesize");
  if (third != 0) {
    return third;
  }
  std::uint64_t all = 0;
  for (const char* level : {"hw.perflevel0.", "hw.perflevel1."}) {
    const std::string key = level;
    const std::uint64_t shared_by = sysctl_number(key + "cpusperl2");
    if (shared_by != 0) {
      all += sysctl_number(key + "l2cachesize") * (sysctl_number(key + "physicalcpu") / shared_by);
    }
  }
  return all;
}

}  // namespace slipway
