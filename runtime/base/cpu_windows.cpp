#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <algorithm>
#include <bitset>
#include <vector>

#include "base/platform.h"
#include "base/windows_text.h"

namespace slipway {
namespace {

// Numbers of IsProcessorFeaturePresent, as winnt.h has them, and how /proc/cpuinfo names the feature.
struct Feature {
  DWORD number;
  const char* name;
};

#if defined(_M_ARM64) || defined(__aarch64__)
constexpr Feature kFeatures[] = {{18, "fp"},    {19, "asimd"},   {30, "aes"},
                                 {31, "crc32"}, {34, "atomics"}, {43, "asimddp"}};
#else
constexpr Feature kFeatures[] = {{6, "sse"},     {10, "sse2"}, {13, "pni"},  {36, "ssse3"},  {37, "sse4_1"},
                                 {38, "sse4_2"}, {39, "avx"},  {40, "avx2"}, {41, "avx512f"}};
#endif

const char* architecture() {
  SYSTEM_INFO info = {};
  ::GetNativeSystemInfo(&info);
  switch (info.wProcessorArchitecture) {
    case PROCESSOR_ARCHITECTURE_AMD64:
      return "x86_64";
    case PROCESSOR_ARCHITECTURE_INTEL:
      return "i686";
    case 12:  // PROCESSOR_ARCHITECTURE_ARM64
      return "aarch64";
    default:
      return "";
  }
}

std::string model() {
  wchar_t name[256] = {};
  DWORD bytes = sizeof(name) - sizeof(name[0]);
  const LSTATUS status =
      ::RegGetValueW(HKEY_LOCAL_MACHINE, L"HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                     L"ProcessorNameString", RRF_RT_REG_SZ, nullptr, name, &bytes);
  std::string text = status == ERROR_SUCCESS ? to_utf8(name) : "";
  while (!text.empty() && text.back() == ' ') {
    text.pop_back();
  }
  return text;
}

unsigned allowed_cpus() {
  DWORD_PTR own = 0;
  DWORD_PTR all = 0;
  if (::GetProcessAffinityMask(::GetCurrentProcess(), &own, &all) == 0) {
    return 1;
  }
  return std::max(1U, static_cast<unsigned>(std::bitset<sizeof(own) * 8>(own).count()));
}

// Cores, hardware threads of one counted once.
unsigned physical_cores() {
  DWORD bytes = 0;
  ::GetLogicalProcessorInformation(nullptr, &bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> rows(bytes /
                                                         sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  if (rows.empty() || ::GetLogicalProcessorInformation(rows.data(), &bytes) == 0) {
    return allowed_cpus();
  }
  const auto cores = std::count_if(rows.begin(), rows.end(),
                                   [](const auto& row) { return row.Relationship == RelationProcessorCore; });
  return std::max(1U, static_cast<unsigned>(cores));
}

}  // namespace

CpuInfo cpu_info() {
  CpuInfo info;
  info.arch = architecture();
  info.model = model();
  for (const Feature& feature : kFeatures) {
    if (::IsProcessorFeaturePresent(feature.number) != 0) {
      info.features.emplace_back(feature.name);
    }
  }
  info.cores = physical_cores();
  return info;
}

unsigned usable_cores() {
  return std::min(physical_cores(), allowed_cpus());
}

}  // namespace slipway
