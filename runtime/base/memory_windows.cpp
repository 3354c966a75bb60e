#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <algorithm>

#include "base/device_memory.h"

namespace slipway {

// What may still be committed, and what of its address space this process has not used.
std::optional<MemoryLeft> memory_left_below(const std::string& /*root*/) {
  MEMORYSTATUSEX status = {};
  status.dwLength = sizeof(status);
  if (::GlobalMemoryStatusEx(&status) == 0) {
    return {};
  }
  return MemoryLeft{std::min(status.ullAvailPageFile, status.ullAvailVirtual), "this device"};
}

std::optional<MemoryLeft> memory_left() {
  return memory_left_below("");
}

}  // namespace slipway
