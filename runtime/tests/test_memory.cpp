#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/platform.h"
#include "check.h"
#include "runner/crash_guard.h"
#include "temporary_folder.h"

namespace {

using namespace slipway;

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;

// A root with files as the kernel has them.
class Root {
 public:
  ~Root() {
    for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
      std::remove(made->c_str());  // a file, or a folder that is empty by now
    }
  }
  void put(const std::string& path, const std::string& text) {
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      made_.push_back(folder_.file(path.substr(0, slash)));
      ::mkdir(made_.back().c_str(), 0777);
    }
    made_.push_back(folder_.write_text(path, text));
  }
  std::string path() const { return folder_.file(""); }

 private:
  TemporaryFolder folder_;
  std::vector<std::string> made_;
};

TEST(memory_of_the_machine_is_what_is_available_and_free_swap) {
  Root root;
  CHECK(!memory_left_below(root.path()));
  root.put("proc/meminfo",
           "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:  2048 kB\nSwapFree:  1024 kB\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 3 * kMebi);
  CHECK_EQUAL(memory_left_below(root.path())->limit, "this device");
  root.put("proc/meminfo", "MemFree: 1024 kB\nBuffers: 512 kB\nCached: 512 kB\nSwapFree: 0 kB\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 2 * kMebi);
}

TEST(memory_of_a_control_group_counts_with_those_above_it) {
  Root root;
  root.put("proc/meminfo", "MemAvailable:  1048576 kB\n");
  root.put("proc/self/cgroup", "0::/a/b\n");
  root.put("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.put("sys/fs/cgroup/a/b/memory.current", "0\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 1024 * kMebi);
  root.put("sys/fs/cgroup/a/memory.max", "104857600\n");
  root.put("sys/fs/cgroup/a/memory.current", "62914560\n");
  root.put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 20971520\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 60 * kMebi);
  CHECK_EQUAL(memory_left_below(root.path())->limit, "the control group /a");
  root.put("sys/fs/cgroup/a/memory.current", "962914560\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, std::uint64_t{0});
}

TEST(memory_of_a_control_group_of_the_first_kind) {
  Root root;
  root.put("proc/meminfo", "MemAvailable:  1048576 kB\n");
  root.put("proc/self/cgroup", "11:cpu,cpuacct:/job\n4:memory:/somewhere/else\n");
  // As in a container: its own group is the root.
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "52428800\n");
  root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "10485760\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 40 * kMebi);
  root.put("proc/self/cgroup", "not a line\n:\n::\n4:memory\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 1024 * kMebi);
}

#ifndef SLIPWAY_SANITIZE
// QEMU's user mode answers setrlimit for memory with success and sets nothing: it would limit itself.
bool memory_limits_hold() {
  const pid_t child = ::fork();
  if (child == 0) {
    struct rlimit limit = {};
    limit.rlim_cur = 512 * kMebi;
    limit.rlim_max = 512 * kMebi;
    const bool set = ::setrlimit(RLIMIT_DATA, &limit) == 0 && ::getrlimit(RLIMIT_DATA, &limit) == 0;
    ::_exit(set && limit.rlim_cur == 512 * kMebi ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// In a process of its own: it keeps its limits.
TEST(describing_is_held_to_limits_of_its_own) {
  const bool memory_holds = memory_limits_hold();
  CHECK(memory_holds || std::getenv("SLIPWAY_TESTS_EMULATED") != nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    limit_describing(describe_bytes(1000));
    struct rlimit time = {};
    struct rlimit memory = {};
    ::getrlimit(RLIMIT_CPU, &time);
    ::getrlimit(RLIMIT_DATA, &memory);
    bool good = time.rlim_cur <= kDescribeSeconds;
    if (memory_holds) {
      good = good && memory.rlim_cur == (1024 * kMebi) + 8000;
      good = good && Pages::allocate(static_cast<std::size_t>(1536 * kMebi)).data() == nullptr;
    }
    limit_describing(describe_bytes(std::uint64_t{1} << 30));
    ::getrlimit(RLIMIT_DATA, &memory);
    ::_exit(good && (!memory_holds || memory.rlim_cur == 9 * 1024 * kMebi) ? 0 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK_EQUAL(WEXITSTATUS(status), 0);
  CHECK_EQUAL(describe_bytes(UINT64_MAX), UINT64_MAX);
}
#endif

TEST(more_memory_than_there_is_is_refused) {
  CHECK(memory_left().has_value());
  CHECK(check_room(kAlwaysTried, "it").ok());
  CHECK(check_room(17 * kMebi, "it").ok());
  const Status status = check_room(std::uint64_t{1} << 60, "method forward");
  CHECK(status.code() == Code::kMemory);
  CHECK_CONTAINS(status.message(), "no memory for method forward: it takes 1152921504606846976 bytes");
}

}  // namespace
