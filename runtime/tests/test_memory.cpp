#include <sys/stat.h>

#include "base/platform.h"
#include "check.h"
#include "temporary_folder.h"

namespace {

using namespace slipway;

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;

// A root with files as the kernel has them.
class Root {
 public:
  void put(const std::string& path, const std::string& text) const {
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      ::mkdir(folder_.file(path.substr(0, slash)).c_str(), 0777);
    }
    folder_.write_text(path, text);
  }
  std::string path() const { return folder_.file(""); }

 private:
  TemporaryFolder folder_;
};

TEST(memory_of_the_machine_is_what_is_available_and_free_swap) {
  const Root root;
  CHECK(!memory_left_below(root.path()));
  root.put("proc/meminfo",
           "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:  2048 kB\nSwapFree:  1024 kB\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 3 * kMebi);
  CHECK_EQUAL(memory_left_below(root.path())->limit, "this device");
}

TEST(memory_of_a_control_group_counts_with_those_above_it) {
  const Root root;
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
  // As in a container: its own group is the root.
  root.put("proc/self/cgroup", "1:name=x:/\n0::/somewhere/else\n");
  root.put("sys/fs/cgroup/memory.max", "52428800\n");
  root.put("sys/fs/cgroup/memory.current", "10485760\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 40 * kMebi);
  root.put("proc/self/cgroup", "not a line\n:\n::\n0:\n");
  CHECK_EQUAL(memory_left_below(root.path())->bytes, 1024 * kMebi);
}

TEST(more_memory_than_there_is_is_refused) {
  CHECK(memory_left().has_value());
  CHECK(check_room(kAlwaysTried, "it").ok());
  CHECK(check_room(17 * kMebi, "it").ok());
  const Status status = check_room(std::uint64_t{1} << 60, "method forward");
  CHECK(status.code() == Code::kMemory);
  CHECK_CONTAINS(status.message(), "no memory for method forward: it takes 1152921504606846976 bytes");
}

}  // namespace
