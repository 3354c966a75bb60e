#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <algorithm>

#include "runner/describe_limits.h"

namespace slipway {

// A job of its own; the system ends what takes more time than it allows.
void limit_describing(std::uint64_t bytes) {
  HANDLE job = ::CreateJobObjectW(nullptr, nullptr);
  if (job == nullptr) {
    return;
  }
  constexpr LONGLONG kUnits = 10'000'000;  // of 100 ns in a second
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {};
  limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_PROCESS_MEMORY | JOB_OBJECT_LIMIT_PROCESS_TIME;
  limits.BasicLimitInformation.PerProcessUserTimeLimit.QuadPart = kUnits * kDescribeSeconds;
  limits.ProcessMemoryLimit = static_cast<SIZE_T>(std::min<std::uint64_t>(bytes, SIZE_MAX));
  // The job lives as long as this process has its handle, which nobody closes.
  if (::SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof(limits)) != 0) {
    ::AssignProcessToJobObject(job, ::GetCurrentProcess());
  }
}

}  // namespace slipway
