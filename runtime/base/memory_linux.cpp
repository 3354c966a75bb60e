#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/platform.h"
#include "base/text.h"

namespace slipway {
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

// What all of the machine has. Systems before Linux 3.14 do not say what is available.
void add_machine(const std::string& root, std::optional<MemoryLeft>* least) {
  const std::string text = system_text(root + "/proc/meminfo");
  std::optional<std::uint64_t> available = number_after(text, "MemAvailable:");
  if (!available) {
    const auto free = number_after(text, "MemFree:");
    if (!free) {
      return;
    }
    available =
        *free + number_after(text, "Cached:").value_or(0) + number_after(text, "Buffers:").value_or(0);
  }
  keep_least(least, (*available + number_after(text, "SwapFree:").value_or(0)) * 1024, "this device");
}

// Names of the files of a control group's memory, by version.
struct GroupFiles {
  const char* folder;
  const char* limit;
  const char* used;
  const char* cached;  // in memory.stat: pages of files, which go when memory is wanted
};
constexpr GroupFiles kSecond = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
constexpr GroupFiles kFirst = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};

// The group and all above it; in a container the path may lead nowhere, and the container's own is the root.
void add_groups(const std::string& root, const GroupFiles& files, std::string group,
                std::optional<MemoryLeft>* least) {
  for (;;) {
    const std::string folder = root + files.folder + (group == "/" ? "" : group) + "/";
    const std::optional<std::uint64_t> limit = number_in(folder + files.limit);
    const std::optional<std::uint64_t> used = number_in(folder + files.used);
    if (limit && used) {
      const std::uint64_t cached =
          number_after(system_text(folder + "memory.stat"), files.cached).value_or(0);
      keep_least(least, difference(*limit, difference(*used, cached)), "the control group " + group);
    }
    if (group.size() <= 1) {
      return;
    }
    group.resize(group.rfind('/'));
    group = group.empty() ? "/" : group;
  }
}

// Lines as "0::/user.slice" (version 2) and "9:memory:/job" or "4:cpu,memory:/job" (version 1).
void add_all_groups(const std::string& root, std::optional<MemoryLeft>* least) {
  const std::string groups = system_text(root + "/proc/self/cgroup");
  for (const std::string_view line : pieces(groups, "\n")) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos || line.substr(second + 1, 1) != "/") {
      continue;
    }
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string group(line.substr(second + 1));
    if (controllers.empty()) {
      add_groups(root, kSecond, group, least);
    }
    for (const std::string_view controller : pieces(controllers, ",")) {
      if (controller == "memory") {
        add_groups(root, kFirst, group, least);
      }
    }
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
  add_all_groups(root, &least);
  return least;
}

std::optional<MemoryLeft> memory_left() {
  std::optional<MemoryLeft> least = memory_left_below("");
  add_own(&least);
  return least;
}

}  // namespace slipway
