// What the device is, and how it is doing: the answers of deploy/scripts/probe.sh, as far as Windows
// has them.

#include "agent.h"

#include <cpuid.h>

#include <cstdio>
#include <cstring>

namespace agent {

namespace {

void part(const char* name) {
  say(std::string("\n@@") + name);
}

std::string machine() {
  SYSTEM_INFO info;
  GetNativeSystemInfo(&info);
  switch (info.wProcessorArchitecture) {
    case PROCESSOR_ARCHITECTURE_AMD64:
      return "x86_64";
    case PROCESSOR_ARCHITECTURE_ARM64:
      return "aarch64";
    case PROCESSOR_ARCHITECTURE_INTEL:
      return "i686";
    default:
      return "unknown";
  }
}

// GetVersionEx says what a program's manifest asks for; this says what it is.
std::string version() {
  using Get = LONG(WINAPI*)(OSVERSIONINFOW*);
  const HMODULE ntdll = GetModuleHandleW(L"ntdll.dll");
  const auto get = reinterpret_cast<Get>(reinterpret_cast<void*>(GetProcAddress(ntdll, "RtlGetVersion")));
  OSVERSIONINFOW found = {};
  found.dwOSVersionInfoSize = sizeof found;
  if (get == nullptr || get(&found) != 0) {
    return "unknown";
  }
  return std::to_string(found.dwMajorVersion) + "." + std::to_string(found.dwMinorVersion) + "." +
         std::to_string(found.dwBuildNumber);
}

std::string host() {
  wchar_t name[256];
  DWORD size = 256;
  return GetComputerNameExW(ComputerNameDnsHostname, name, &size) != 0 ? narrow(std::wstring(name, size))
                                                                       : "";
}

struct Feature {
  const char* name;
  unsigned leaf;
  int reg;  // 0 to 3: eax, ebx, ecx, edx
  int bit;
};

// Intel's manual, volume 2, "CPUID"; the names are Linux's.
constexpr Feature kFeatures[] = {
    {"sse2", 1, 3, 26},    {"ssse3", 1, 2, 9},     {"fma", 1, 2, 12},      {"sse4_1", 1, 2, 19},
    {"sse4_2", 1, 2, 20},  {"avx", 1, 2, 28},      {"f16c", 1, 2, 29},     {"avx2", 7, 1, 5},
    {"avx512f", 7, 1, 16}, {"avx512bw", 7, 1, 30}, {"avx512vl", 7, 1, 31}, {"avx512_vnni", 7, 2, 11},
};

void cpu() {
  char brand[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    unsigned regs[4] = {};
    if (__get_cpuid(0x80000002u + i, &regs[0], &regs[1], &regs[2], &regs[3])) {
      std::memcpy(brand + 16 * i, regs, sizeof regs);
    }
  }
  std::string flags;
  for (const Feature& feature : kFeatures) {
    unsigned regs[4] = {};
    if (__get_cpuid_count(feature.leaf, 0, &regs[0], &regs[1], &regs[2], &regs[3]) &&
        (regs[feature.reg] >> feature.bit & 1u) != 0) {
      flags += std::string(" ") + feature.name;
    }
  }
  say(std::string("model name : ") + brand);
  // On Arm, where Windows emulates x86 for this program, these are not the processor's.
  if (machine() != "aarch64") {
    say("flags :" + flags);
  }
}

void memory(bool total) {
  MEMORYSTATUSEX found;
  found.dwLength = sizeof found;
  if (GlobalMemoryStatusEx(&found) == 0) {
    return;
  }
  if (total) {
    say("MemTotal: " + std::to_string(found.ullTotalPhys / 1024) + " kB");
  }
  say("MemAvailable: " + std::to_string(found.ullAvailPhys / 1024) + " kB");
}

void libraries(const std::string& names) {
  wchar_t folder[MAX_PATH];
  const std::string system = shown(std::wstring(folder, GetSystemDirectoryW(folder, MAX_PATH)));
  for (const std::string& name : split(names, ' ')) {
    // The sets of the universal C runtime are names that the loader resolves by itself.
    if (!name.empty() && (_strnicmp(name.c_str(), "api-ms-win-", 11) == 0 || exists(system + "/" + name))) {
      say(name + " " + system + "/" + name);
    }
  }
}

}  // namespace

// The words are root, triplet, loaders, libraries, tools and the bundle's loader. Returns the absolute root.
std::string probe(const Words& words) {
  wchar_t profile[MAX_PATH];
  const std::string home =
      shown(std::wstring(profile, GetEnvironmentVariableW(L"USERPROFILE", profile, MAX_PATH)));
  part("system");
  say("Windows\n" + machine() + "\n" + version() + "\n" + host());
  part("home");
  say(home);
  const std::string& named = words[0];
  const size_t letter = named.rfind('/', 0) == 0 ? 1 : 0;
  const bool absolute = named.size() > letter + 1 && named[letter + 1] == ':';
  wchar_t full[MAX_PATH] = {};
  GetFullPathNameW(native(named).c_str(), MAX_PATH, full, nullptr);
  const std::string root = absolute ? shown(full) : home.empty() ? "" : home + "/" + named;
  part("root");
  say(root);
  std::string nearest = root;
  while (!is_folder(nearest) && nearest.rfind('/') != std::string::npos && nearest.rfind('/') > 2) {
    nearest.resize(nearest.rfind('/'));
  }
  part("near");
  say(nearest);
  part("writable");
  if (open(nearest, FILE_ADD_FILE)) {  // nothing is made
    say("yes");
  }
  part("df");
  ULARGE_INTEGER left;
  if (GetDiskFreeSpaceExW(native(nearest + "/").c_str(), &left, nullptr, nullptr) != 0) {
    say("disk 0 0 " + std::to_string(left.QuadPart / 1024) + " 0% /");
  }
  part("cpuinfo");
  cpu();
  part("cores");
  say(std::to_string(GetActiveProcessorCount(ALL_PROCESSOR_GROUPS)));
  part("memory");
  memory(true);
  part("libraries");
  libraries(words[3]);
  part("tools");
  for (const std::string& tool : split(words[4], ' ')) {
    say(tool);  // this program does what they do elsewhere
  }
  part("end");
  std::fflush(stdout);
  return root;
}

void state(const std::string& part) {
  say("@@" + part);
  memory(false);
  say("@@end");
}

}  // namespace agent
