#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
// The functions of psapi.h that kernel32.dll has itself.
#define PSAPI_VERSION 2
#include <fcntl.h>
#include <io.h>
#include <windows.h>
// After windows.h, whose types they use.
#include <psapi.h>
#include <shellapi.h>

#include <algorithm>
#include <bitset>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/platform.h"
#include "base/text.h"

namespace slipway {
namespace {

class Handle {
 public:
  explicit Handle(HANDLE handle) : handle_(handle) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { close(); }

  HANDLE get() const { return handle_; }
  bool valid() const { return handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE; }
  // Closes now, so that a late write error is seen.
  bool close() {
    HANDLE old = std::exchange(handle_, INVALID_HANDLE_VALUE);
    return old == nullptr || old == INVALID_HANDLE_VALUE || ::CloseHandle(old) != 0;
  }

 private:
  HANDLE handle_;
};

Status cannot_write(const std::string& path, DWORD error) {
  std::string fix = "name a folder that exists and may be written to";
  if (error == ERROR_DISK_FULL || error == ERROR_HANDLE_DISK_FULL) {
    fix = "free some space there, or write to another place";
  }
  return {Code::kOutput, "Cannot write " + path + ": " + system_message(error) + ".", fix, {path}};
}

// 0, or the error.
DWORD write_all(HANDLE file, const void* data, std::size_t size) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 28;
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    DWORD written = 0;
    if (::WriteFile(file, next, static_cast<DWORD>(std::min(size, kAtOnce)), &written, nullptr) == 0) {
      return ::GetLastError();
    }
    next += written;
    size -= written;
  }
  return 0;
}

// Makes a file that was not there before; INVALID_HANDLE_VALUE and GetLastError() on failure.
HANDLE create_temporary(const std::wstring& path, std::wstring* temporary) {
  constexpr int kAttempts = 100;  // names that a killed process of the same number may have left
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *temporary =
        path + L"." + std::to_wstring(::GetCurrentProcessId()) + L"." + std::to_wstring(attempt) + L".tmp";
    HANDLE file = ::CreateFileW(temporary->c_str(), GENERIC_WRITE, FILE_SHARE_DELETE, nullptr, CREATE_NEW,
                                FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file != INVALID_HANDLE_VALUE || ::GetLastError() != ERROR_FILE_EXISTS) {
      return file;
    }
  }
  return INVALID_HANDLE_VALUE;
}

// A FILETIME counts 100 nanoseconds since 1601.
constexpr std::int64_t kFileTimesTo1970 = 116444736000000000;

std::int64_t nanoseconds(std::int64_t file_time) {
  return (file_time - kFileTimesTo1970) * 100;
}

FileIdentity identity_of(HANDLE file) {
  FileIdentity identity;
  BY_HANDLE_FILE_INFORMATION numbers = {};
  FILE_BASIC_INFO times = {};
  if (::GetFileInformationByHandle(file, &numbers) != 0 &&
      ::GetFileInformationByHandleEx(file, FileBasicInfo, &times, sizeof(times)) != 0) {
    identity.number = (static_cast<std::uint64_t>(numbers.nFileIndexHigh) << 32) | numbers.nFileIndexLow;
    identity.modified = nanoseconds(times.LastWriteTime.QuadPart);
    identity.changed = nanoseconds(times.ChangeTime.QuadPart);
  }
  identity.seen = wall_clock();
  return identity;
}

void set_modified(HANDLE file, std::int64_t modified) {
  if (modified != 0) {
    const auto ticks = static_cast<std::uint64_t>(modified / 100 + kFileTimesTo1970);
    const FILETIME time = {static_cast<DWORD>(ticks), static_cast<DWORD>(ticks >> 32)};
    ::SetFileTime(file, nullptr, nullptr, &time);
  }
}

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
  return status == ERROR_SUCCESS ? trimmed(to_utf8(name), " ") : "";
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

Result<MappedFile> MappedFile::open(const std::string& path) {
  const auto fail = [&](const std::string& what, const std::string& fix) {
    return Status(Code::kFile, "Cannot read " + path + ": " + what + ".", fix, {path});
  };
  const std::wstring wide = to_wide(path);
  const DWORD attributes = ::GetFileAttributesW(wide.c_str());
  if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0) {
    return fail("it is a folder", "name the file itself");
  }
  const Handle file(::CreateFileW(wide.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr));
  if (!file.valid()) {
    const DWORD error = ::GetLastError();
    const bool absent = error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND;
    return fail(system_message(error), absent ? "check the path" : "check the file's permissions");
  }
  if (::GetFileType(file.get()) != FILE_TYPE_DISK) {
    return fail("it is not a regular file", "name the file itself");
  }
  LARGE_INTEGER size = {};
  if (::GetFileSizeEx(file.get(), &size) == 0) {
    return fail(system_message(::GetLastError()), "check the file");
  }
  const auto bytes = static_cast<std::uint64_t>(size.QuadPart);
  if (bytes > SIZE_MAX) {
    return fail("it is larger than this machine's address space", "use a 64-bit target");
  }
  if (bytes == 0) {
    return MappedFile(nullptr, 0, identity_of(file.get()));
  }
  const Handle mapping(::CreateFileMappingW(file.get(), nullptr, PAGE_READONLY, 0, 0, nullptr));
  if (!mapping.valid()) {
    return fail(system_message(::GetLastError()), "copy the file to a local disk");
  }
  const void* data = ::MapViewOfFile(mapping.get(), FILE_MAP_READ, 0, 0, 0);
  if (data == nullptr) {
    return Status(Code::kMemory, "No address space to map " + path + ".",
                  "end other programs, or use a 64-bit target");
  }
  return MappedFile(static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(bytes),
                    identity_of(file.get()));
}

Result<MappedFile> MappedFile::open_part(int /*descriptor*/, std::uint64_t /*offset*/, std::uint64_t /*size*/,
                                         const std::string& name) {
  return Status(Code::kUsage, name + " cannot be loaded: Windows has no file descriptors of its own.",
                "load it from its path or from memory");
}

void MappedFile::Unmap::operator()(const std::uint8_t* data) const {
  if (ours) {
    ::UnmapViewOfFile(data);
  }
}

void MappedFile::forget(const std::uint8_t* data, std::size_t size) const {
  // Pages that are not locked leave the working set when they are unlocked; the call says that they were not.
  if (is_ours(data, size)) {
    ::VirtualUnlock(const_cast<std::uint8_t*>(data), size);
  }
}

Pages Pages::allocate(std::size_t size) {
  void* memory = ::VirtualAlloc(nullptr, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  return {static_cast<std::uint8_t*>(memory), memory == nullptr ? 0 : size};
}

void Pages::Free::operator()(std::uint8_t* data) const {
  ::VirtualFree(data, 0, MEM_RELEASE);
}

bool exists(const std::string& path) {
  return ::GetFileAttributesW(to_wide(path).c_str()) != INVALID_FILE_ATTRIBUTES;
}

std::string own_path() {
  wchar_t path[4096];
  constexpr DWORD kMost = sizeof(path) / sizeof(path[0]);
  HMODULE own = nullptr;
  ::GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                       reinterpret_cast<LPCWSTR>(reinterpret_cast<const void*>(&own_path)), &own);
  const DWORD size = ::GetModuleFileNameW(own, path, kMost);
  return size == 0 || size == kMost ? std::string() : to_utf8(path);
}

Status write_file(const std::string& path, const std::vector<FilePart>& parts, const SelfPortrait& portrait) {
  const std::wstring wide = to_wide(path);
  std::wstring temporary;
  Handle file(create_temporary(wide, &temporary));
  if (!file.valid()) {
    return cannot_write(path, ::GetLastError());
  }
  if (portrait.paint) {
    portrait.paint(identity_of(file.get()).number);
  }
  DWORD error = 0;
  for (std::size_t i = 0; error == 0 && i < parts.size(); ++i) {
    error = write_all(file.get(), parts[i].data, parts[i].size);
  }
  set_modified(file.get(), portrait.modified);
  if (error == 0 && ::FlushFileBuffers(file.get()) == 0) {
    error = ::GetLastError();
  }
  if (!file.close() && error == 0) {
    error = ::GetLastError();
  }
  if (error == 0 && ::MoveFileExW(temporary.c_str(), wide.c_str(),
                                  MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) == 0) {
    error = ::GetLastError();
  }
  if (error != 0) {
    ::DeleteFileW(temporary.c_str());
  }
  return error == 0 ? Status() : cannot_write(path, error);
}

std::uint64_t peak_rss_bytes() {
  PROCESS_MEMORY_COUNTERS counters = {};
  counters.cb = sizeof(counters);
  if (::GetProcessMemoryInfo(::GetCurrentProcess(), &counters, sizeof(counters)) == 0) {
    return 0;
  }
  return counters.PeakWorkingSetSize;
}

std::vector<std::string> command_words(int argc, char** argv) {
  // The same bytes on every system: no carriage returns, and text in UTF-8.
  ::_setmode(::_fileno(stdout), _O_BINARY);
  ::_setmode(::_fileno(stderr), _O_BINARY);
  ::SetConsoleOutputCP(CP_UTF8);
  // What main() is given went through the system's own code page, which lacks letters.
  int count = 0;
  wchar_t** wide = ::CommandLineToArgvW(::GetCommandLineW(), &count);
  if (wide == nullptr) {
    return std::vector<std::string>(argv + 1, argv + argc);
  }
  std::vector<std::string> words;
  for (int i = 1; i < count; ++i) {
    words.push_back(to_utf8(wide[i]));
  }
  ::LocalFree(wide);
  return words;
}

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

std::wstring to_wide(const std::string& text) {
  const int bytes = static_cast<int>(text.size());
  const int count = ::MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, nullptr, 0);
  std::wstring wide(static_cast<std::size_t>(count), L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, wide.data(), count);
  return wide;
}

std::string to_utf8(const wchar_t* text) {
  // With the terminating zero, which is taken off again.
  const int count = ::WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
  if (count <= 0) {
    return {};
  }
  std::string narrow(static_cast<std::size_t>(count), '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, text, -1, narrow.data(), count, nullptr, nullptr);
  narrow.pop_back();
  return narrow;
}

std::string system_message(unsigned long error) {
  wchar_t buffer[512] = {};
  const DWORD length =
      ::FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr, error,
                       MAKELANGID(LANG_ENGLISH, SUBLANG_DEFAULT), buffer, 512, nullptr);
  return length == 0 ? "error " + std::to_string(error) : trimmed(to_utf8(buffer), " .\r\n");
}

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
