#include "runner/roofline/roofline.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include <cstdlib>
#include <map>
#include <vector>

#include "base/platform.h"

namespace slipway {

#if defined(_WIN32)

std::uint64_t last_level_caches(const std::string& /*root*/) {
  DWORD bytes = 0;
  ::GetLogicalProcessorInformation(nullptr, &bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> rows(bytes /
                                                         sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  if (rows.empty() || ::GetLogicalProcessorInformation(rows.data(), &bytes) == 0) {
    return 0;
  }
  BYTE last = 0;
  std::uint64_t all = 0;
  for (const SYSTEM_LOGICAL_PROCESSOR_INFORMATION& row : rows) {
    if (row.Relationship != RelationCache || row.Cache.Level < last) {
      continue;
    }
    all = (row.Cache.Level > last ? 0 : all) + row.Cache.Size;
    last = row.Cache.Level;
  }
  return all;
}

#elif defined(__APPLE__)

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

#else

std::uint64_t last_level_caches(const std::string& root) {
  unsigned long last = 0;
  std::map<std::string, std::uint64_t> caches;  // by the processors that share one
  for (int cpu = 0;; ++cpu) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    if (!exists(folder)) {
      break;
    }
    for (int index = 0;; ++index) {
      const std::string cache = folder + "/cache/index" + std::to_string(index) + "/";
      const unsigned long level = std::strtoul(system_text(cache + "level").c_str(), nullptr, 10);
      if (level == 0) {
        break;
      }
      if (level > last) {
        caches.clear();
        last = level;
      }
      if (level == last) {
        // In KiB: "32768K".
        caches[system_text(cache + "shared_cpu_list")] =
            std::strtoull(system_text(cache + "size").c_str(), nullptr, 10) * 1024;
      }
    }
  }
  std::uint64_t all = 0;
  for (const auto& [shared_by, bytes] : caches) {
    all += bytes;
  }
  return all;
}

#endif

}  // namespace slipway
