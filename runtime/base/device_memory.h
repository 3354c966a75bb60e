// What memory there is for this process, before it is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "slipway/status.h"

namespace slipway {

struct MemoryLeft {
  std::uint64_t bytes = 0;
  std::string limit;  // what says so: "this device", "the control group /job", "ulimit -v"
};

// The least of what the system has left (on Linux MemAvailable and free swap), what the control groups of
// this process leave (version 1 and 2), and its own limits (RLIMIT_AS, RLIMIT_DATA). Nothing where the
// system reports none of these.
std::optional<MemoryLeft> memory_left();

// The same below another root than "/", for tests; without this process's own limits.
std::optional<MemoryLeft> memory_left_below(const std::string& root);

// kMemory when `what` ("method forward") takes more bytes than are left. Up to kAlwaysTried nothing is
// compared: so little is simply tried.
inline constexpr std::uint64_t kAlwaysTried = std::uint64_t{16} << 20;
Status check_room(std::uint64_t bytes, const std::string& what);

}  // namespace slipway
