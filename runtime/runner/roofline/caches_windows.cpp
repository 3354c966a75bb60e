#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <vector>

#include "runner/roofline/caches.h"

namespace slipway {

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

}  // namespace slipway
