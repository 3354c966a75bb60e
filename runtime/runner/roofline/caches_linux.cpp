#include <cstdlib>
#include <map>

#include "base/platform.h"
#include "runner/roofline/caches.h"

namespace slipway {

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

}  // namespace slipway
