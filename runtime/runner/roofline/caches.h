#pragma once

#include <cstdint>
#include <string>

namespace slipway {

// Bytes of all caches of the last level that the system reports, each once however many cores share it; 0
// when it reports none. `root` is another root than "/", for tests on Linux.
std::uint64_t last_level_caches(const std::string& root = "");

}  // namespace slipway
