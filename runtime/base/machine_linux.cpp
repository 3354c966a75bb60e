// What Linux says of the processor and of memory.
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/platform.h"
#include "base/text.h"

namespace slipway {
namespace {

// Arm's own cores by part number (implementer 0x41), as in their Technical Reference Manuals' MIDR_EL1.
struct ArmPart {
  unsigned part;
  const char* name;
};

constexpr ArmPart kArmParts[] = {
    {0xb76, "ARM1176"},     {0xc05, "Cortex-A5"},   {0xc07, "Cortex-A7"},   {0xc08, "Cortex-A8"},
    {0xc09, "Cortex-A9"},   {0xc0f, "Cortex-A15"},  {0xd01, "Cortex-A32"},  {0xd03, "Cortex-A53"},
    {0xd04, "Cortex-A35"},  {0xd05, "Cortex-A55"},  {0xd07, "Cortex-A57"},  {0xd08, "Cortex-A72"},
    {0xd09, "Cortex-A73"},  {0xd0a, "Cortex-A75"},  {0xd0b, "Cortex-A76"},  {0xd0c, "Neoverse-N1"},
    {0xd0d, "Cortex-A77"},  {0xd40, "Neoverse-V1"}, {0xd41, "Cortex-A78"},  {0xd44, "Cortex-X1"},
    {0xd46, "Cortex-A510"}, {0xd47, "Cortex-A710"}, {0xd48, "Cortex-X2"},   {0xd49, "Neoverse-N2"},
    {0xd4d, "Cortex-A715"}, {0xd4e, "Cortex-X3"},   {0xd4f, "Neoverse-V2"}, {0xd80, "Cortex-A520"},
    {0xd81, "Cortex-A720"}, {0xd82, "Cortex-X4"},
};

constexpr std::string_view kBlanks = " \t\r\n";

std::string arm_model(const std::string& implementer, const std::string& part) {
  if (implementer.empty() || part.empty()) {
    return "";
  }
  const unsigned long number = std::strtoul(part.c_str(), nullptr, 16);
  if (std::strtoul(implementer.c_str(), nullptr, 16) == 0x41) {
    for (const ArmPart& known : kArmParts) {
      if (known.part == number) {
        return known.name;
      }
    }
  }
  return "implementer " + implementer + " part " + part;
}

std::string first_line(const std::string& path) {
  const std::string text = system_text(path);
  return trimmed(std::string_view(text).substr(0, text.find('\n')), kBlanks);
}

// Cores, hardware threads of one counted once. 0 when the system does not tell.
unsigned topology_cores() {
  std::set<std::string> cores;
  for (int cpu = 0;; ++cpu) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    if (::access(folder.c_str(), F_OK) != 0) {
      return static_cast<unsigned>(cores.size());
    }
    // Absent for a processor that is offline.
    const std::string siblings = first_line(folder + "/topology/thread_siblings_list");
    if (!siblings.empty()) {
      cores.insert(siblings);
    }
  }
}

unsigned online_cpus() {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<unsigned>(online) : 1;
}

}  // namespace

CpuInfo cpu_info() {
  CpuInfo info;
  struct utsname names = {};
  if (::uname(&names) == 0) {
    info.arch = names.machine;
  }
  const bool arm = info.arch.rfind("aarch64", 0) == 0 || info.arch.rfind("arm", 0) == 0;
  // User-mode emulators of old hand through the host's cpuinfo: take only the key of our own architecture.
  const std::string feature_key = arm ? "Features" : "flags";
  std::string implementer;
  std::string part;
  std::string hardware;
  const std::string all = system_text("/proc/cpuinfo");
  for (const std::string_view line : pieces(all, "\n")) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      continue;
    }
    const std::string key = trimmed(line.substr(0, colon), kBlanks);
    const std::string value = trimmed(line.substr(colon + 1), kBlanks);
    if (key == feature_key && info.features.empty()) {
      for (const std::string_view word : pieces(value, kBlanks)) {
        info.features.emplace_back(word);
      }
    } else if (key == "model name" && !arm && info.model.empty()) {
      info.model = value;
    } else if (key == "CPU implementer" && implementer.empty()) {
      implementer = value;
    } else if (key == "CPU part" && part.empty()) {
      part = value;
    } else if (key == "Model") {
      hardware = value;  // the board, on a Raspberry Pi's kernel
    }
  }
  if (arm) {
    info.model = arm_model(implementer, part);
    if (!hardware.empty()) {
      info.model += (info.model.empty() ? "" : ", ") + hardware;
    }
  }
  const unsigned cores = topology_cores();
  info.cores = cores != 0 ? cores : online_cpus();
  return info;
}

unsigned usable_cores() {
  unsigned allowed = online_cpus();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    allowed = static_cast<unsigned>(CPU_COUNT(&set));
  }
  const unsigned cores = topology_cores();
  return std::max(1U, cores == 0 ? allowed : std::min(cores, allowed));
}

namespace {

// The number after `key` in lines as "MemAvailable:  123 kB" or "inactive_file 4096"; nothing without it.
std::optional<std::uint64_t> number_after(const std::string& text, std::string_view key) {
  for (const std::string_view line : pieces(text, "\n")) {
    const std::vector<std::string_view> words = pieces(line, " \t");
    if (words.size() >= 2 && words[0] == key) {
      return std::strtoull(std::string(words[1]).c_str(), nullptr, 10);
    }
  }
  return {};
}

// A file that holds one number; nothing for "max", and where there is none.
std::optional<std::uint64_t> number_in(const std::string& path) {
  const std::string text = system_text(path);
  if (text.empty() || text.front() < '0' || text.front() > '9') {
    return {};
  }
  return std::strtoull(text.c_str(), nullptr, 10);
}

void keep_least(std::optional<MemoryLeft>* least, std::uint64_t bytes, const std::string& limit) {
  if (!*least || bytes < (*least)->bytes) {
    *least = MemoryLeft{bytes, limit};
  }
}

std::uint64_t difference(std::uint64_t limit, std::uint64_t used) {
  return limit > used ? limit - used : 0;
}

// What all of the machine has.
void add_machine(const std::string& root, std::optional<MemoryLeft>* least) {
  const std::string text = system_text(root + "/proc/meminfo");
  if (const auto available = number_after(text, "MemAvailable:")) {
    keep_least(least, (*available + number_after(text, "SwapFree:").value_or(0)) * 1024, "this device");
  }
}

// The control group (version 2); its line is "0::/user.slice", and all above it up to a container's own root.
void add_groups(const std::string& root, std::optional<MemoryLeft>* least) {
  const std::string groups = system_text(root + "/proc/self/cgroup");
  const std::vector<std::string_view> lines = pieces(groups, "\n");
  const auto line = std::find_if(lines.begin(), lines.end(),
                                 [](std::string_view one) { return one.substr(0, 4) == "0::/"; });
  std::string group(line == lines.end() ? "" : line->substr(3));
  while (!group.empty()) {
    const std::string folder = root + "/sys/fs/cgroup" + (group == "/" ? "" : group) + "/";
    const std::optional<std::uint64_t> limit = number_in(folder + "memory.max");
    const std::optional<std::uint64_t> used = number_in(folder + "memory.current");
    if (limit && used) {
      // Pages of files go when memory is wanted.
      const std::uint64_t cached =
          number_after(system_text(folder + "memory.stat"), "inactive_file").value_or(0);
      keep_least(least, difference(*limit, difference(*used, cached)), "the control group " + group);
    }
    const std::size_t slash = group.rfind('/');
    group = group == "/" ? "" : group.substr(0, slash == 0 ? 1 : slash);
  }
}

// This process's own limits, from what /proc/self/status says that it uses of them.
void add_own(std::optional<MemoryLeft>* least) {
  struct Own {
    int resource;
    const char* used;
    const char* name;
  };
  constexpr Own kAll[] = {{RLIMIT_AS, "VmSize:", "ulimit -v"}, {RLIMIT_DATA, "VmData:", "ulimit -d"}};
  const std::string status = system_text("/proc/self/status");
  for (const Own& own : kAll) {
    struct rlimit limit = {};
    const auto used = number_after(status, own.used);
    // glibc gives the resources a type of their own.
    if (used && ::getrlimit(static_cast<decltype(RLIMIT_AS)>(own.resource), &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
      keep_least(least, difference(limit.rlim_cur, *used * 1024), own.name);
    }
  }
}

}  // namespace

std::optional<MemoryLeft> memory_left_below(const std::string& root) {
  std::optional<MemoryLeft> least;
  add_machine(root, &least);
  add_groups(root, &least);
  return least;
}

std::optional<MemoryLeft> memory_left() {
  std::optional<MemoryLeft> least = memory_left_below("");
  add_own(&least);
  return least;
}

}  // namespace slipway
