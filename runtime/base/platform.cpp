// What is the same on every system.
#include "base/platform.h"

#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

namespace slipway {
namespace {

std::string mebibytes(std::uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

}  // namespace

std::int64_t wall_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status check_threads(unsigned count) {
  const std::string what = std::to_string(count) + " threads";
  if (count > kMostThreads) {
    return {Code::kUsage,
            "A pool has at most " + std::to_string(kMostThreads) + " threads, not " + what + ".",
            "leave --cpu_threads out for one a physical core"};
  }
  std::vector<std::thread> others;
  std::mutex start;  // all must be there at once
  Status status;
  {
    const std::lock_guard<std::mutex> wait(start);
    try {
      while (others.size() + 1 < count) {
        others.emplace_back([&start] { const std::lock_guard<std::mutex> go(start); });
      }
    } catch (const std::system_error& error) {
      status = Status(Code::kMemory, "The system does not start " + what + ": " + error.what() + ".",
                      "ask for fewer (--cpu_threads), or raise its limits (ulimit -u, ulimit -v)");
    }
  }
  for (std::thread& other : others) {
    other.join();
  }
  return status;
}

Status check_room(std::uint64_t bytes, const std::string& what) {
  if (bytes <= kAlwaysTried) {
    return {};
  }
  const std::optional<MemoryLeft> left = memory_left();
  if (!left || bytes <= left->bytes) {
    return {};
  }
  return {Code::kMemory,
          "There is no memory for " + what + ": it takes " + std::to_string(bytes) + " bytes (" +
              mebibytes(bytes) + "), " + left->limit + " leaves " + mebibytes(left->bytes) + ".",
          "end other programs, raise the limit, or use a smaller program or input"};
}

}  // namespace slipway
