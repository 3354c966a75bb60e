// `agent WORDS`: see agent.h. The file system below the working folder, whose paths have forward slashes;
// what the device is, and how it is doing: the answers of deploy/scripts/probe.sh, as far as Windows has
// them; and the commands.

#include "agent.h"

#include <bcrypt.h>
#include <cpuid.h>
#include <fcntl.h>
#include <io.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace agent {

namespace {

bool has(const std::string& path, DWORD attribute) {
  const DWORD found = GetFileAttributesW(native(path).c_str());
  return found != INVALID_FILE_ATTRIBUTES && (found & attribute) != 0;
}

std::string joined(DWORD high, DWORD low) {
  return std::to_string(static_cast<unsigned long long>(high) << 32 | low);
}

}  // namespace

std::wstring native(const std::string& path) {
  const bool drive = path.size() > 2 && path[0] == '/' && path[2] == ':';
  std::wstring found = wide(drive ? path.substr(1) : path);
  std::replace(found.begin(), found.end(), L'/', L'\\');
  return found;
}

std::string shown(const std::wstring& path) {
  std::string found = narrow(path);
  std::replace(found.begin(), found.end(), '\\', '/');
  return found.size() > 1 && found[1] == ':' ? "/" + found : found;
}

Handle open(const std::string& path, DWORD access, DWORD disposition, DWORD share) {
  const DWORD flags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
  const HANDLE file = CreateFileW(native(path).c_str(), access, share, nullptr, disposition, flags, nullptr);
  return Handle(file == INVALID_HANDLE_VALUE ? nullptr : file);
}

bool exists(const std::string& path) {
  return GetFileAttributesW(native(path).c_str()) != INVALID_FILE_ATTRIBUTES;
}

bool is_folder(const std::string& path) {
  return has(path, FILE_ATTRIBUTE_DIRECTORY);
}

bool is_link(const std::string& path) {
  return has(path, FILE_ATTRIBUTE_REPARSE_POINT);
}

bool enter(const std::string& root) {
  return SetCurrentDirectoryW(native(root).c_str()) != 0;
}

bool make_folders(const std::string& path) {
  if (path.empty() || is_folder(path)) {
    return true;
  }
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0 && !make_folders(path.substr(0, slash))) {
    return false;
  }
  if (CreateDirectoryW(native(path).c_str(), nullptr) != 0 || is_folder(path)) {
    return true;
  }
  complain("making the folder", path);
  return false;
}

Words names_in(const std::string& folder) {
  Words found;
  WIN32_FIND_DATAW entry;
  const HANDLE search = FindFirstFileW((native(folder) + L"\\*").c_str(), &entry);
  for (bool more = search != INVALID_HANDLE_VALUE; more; more = FindNextFileW(search, &entry) != 0) {
    const std::string name = narrow(entry.cFileName);
    if (name != "." && name != "..") {
      found.push_back(name);
    }
  }
  FindClose(search);
  std::sort(found.begin(), found.end());
  return found;
}

bool remove_all(const std::string& path) {
  if (!is_folder(path)) {
    return !exists(path) || DeleteFileW(native(path).c_str()) != 0;
  }
  for (const std::string& name : is_link(path) ? Words() : names_in(path)) {
    remove_all(path + "/" + name);
  }
  return RemoveDirectoryW(native(path).c_str()) != 0;
}

bool move_over(const std::string& from, const std::string& to) {
  const DWORD flags = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
  return MoveFileExW(native(from).c_str(), native(to).c_str(), flags) != 0;
}

std::string read_text(const std::string& path) {
  const Handle file = open(path, GENERIC_READ);
  std::string text;
  char piece[4096];
  for (DWORD count = 0;
       file && ReadFile(file.get(), piece, sizeof piece, &count, nullptr) != 0 && count > 0;) {
    text.append(piece, count);
  }
  return text;
}

bool write(const Handle& file, const std::string& text) {
  DWORD count = 0;
  return file && WriteFile(file.get(), text.data(), static_cast<DWORD>(text.size()), &count, nullptr) != 0 &&
         count == text.size() && FlushFileBuffers(file.get()) != 0;
}

bool write_text(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  const bool written = write(open(part, GENERIC_WRITE, CREATE_ALWAYS), text);
  if (written && move_over(part, path)) {
    return true;
  }
  complain("writing", path);
  return false;
}

BY_HANDLE_FILE_INFORMATION information(const std::string& path) {
  const Handle file = open(path, FILE_READ_ATTRIBUTES);
  BY_HANDLE_FILE_INFORMATION found = {};
  if (file) {
    GetFileInformationByHandle(file.get(), &found);
  }
  return found;
}

long long size_of(const std::string& path) {
  const BY_HANDLE_FILE_INFORMATION found = information(path);
  return exists(path) && !is_folder(path)
             ? static_cast<long long>(found.nFileSizeHigh) << 32 | found.nFileSizeLow
             : -1;
}

bool same_file(const std::string& one, const std::string& other) {
  const BY_HANDLE_FILE_INFORMATION a = information(one), b = information(other);
  return a.nNumberOfLinks > 0 && a.dwVolumeSerialNumber == b.dwVolumeSerialNumber &&
         a.nFileIndexHigh == b.nFileIndexHigh && a.nFileIndexLow == b.nFileIndexLow;
}

// A file's size, and what changes whenever its bytes do: its index on the volume, and the times of its last
// change to bytes and to itself, in units of 100 ns.
void look(const std::string& path) {
  const Handle file = open(path, FILE_READ_ATTRIBUTES);
  BY_HANDLE_FILE_INFORMATION found;
  FILE_BASIC_INFO times;
  if (file && GetFileInformationByHandle(file.get(), &found) != 0 &&
      GetFileInformationByHandleEx(file.get(), FileBasicInfo, &times, sizeof times) != 0) {
    say("size " + joined(found.nFileSizeHigh, found.nFileSizeLow) + " " +
        joined(found.nFileIndexHigh, found.nFileIndexLow) + ":" +
        std::to_string(times.LastWriteTime.QuadPart) + " " + std::to_string(times.ChangeTime.QuadPart) +
        "; " + path);
  }
}

std::string digest(const std::string& path) {
  const Handle file = open(path, GENERIC_READ);
  BCRYPT_ALG_HANDLE algorithm = nullptr;
  BCRYPT_HASH_HANDLE hash = nullptr;
  bool good = file && BCryptOpenAlgorithmProvider(&algorithm, BCRYPT_SHA256_ALGORITHM, nullptr, 0) == 0 &&
              BCryptCreateHash(algorithm, &hash, nullptr, 0, nullptr, 0, 0) == 0;
  std::vector<unsigned char> piece(1 << 18);
  for (DWORD count = 1; good && count > 0;) {
    good = ReadFile(file.get(), piece.data(), static_cast<DWORD>(piece.size()), &count, nullptr) != 0 &&
           BCryptHashData(hash, piece.data(), count, 0) == 0;
  }
  unsigned char sum[32];
  good = good && BCryptFinishHash(hash, sum, sizeof sum, 0) == 0;
  BCryptDestroyHash(hash);
  BCryptCloseAlgorithmProvider(algorithm, 0);
  std::string found = good ? "" : "unable";
  for (size_t i = 0; good && i < sizeof sum; ++i) {
    found += "0123456789abcdef"[sum[i] >> 4];
    found += "0123456789abcdef"[sum[i] & 15];
  }
  return found;
}

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

namespace {

int probed(const Words& words) {
  probe(words);
  return 0;
}

int opened(const Words& words) {
  Words others = {probe(words)};
  others.insert(others.end(), words.begin() + 6, words.end());
  return lock(others);
}

int stated(const Words&) {
  state("now");
  return 0;
}

int unpinned(const Words&) {
  return 0;
}

constexpr int kAnywhere = -1;

struct Command {
  const char* name;
  size_t words;  // at least
  int (*function)(const Words&);
  int without;  // kAnywhere, or the exit code if the root, its first word, is not there
};

constexpr Command kCommands[] = {
    {"arrange", 5, arrange, kFailed},
    {"commit", 3, commit, kFailed},
    {"discard", 1, discard, 0},
    {"end", 1, end, kAnywhere},
    {"flip", 3, flip, kFailed},
    {"listing", 1, listing, 0},
    {"lock", 6, lock, kAnywhere},
    {"open", 11, opened, kAnywhere},
    {"probe", 6, probed, kAnywhere},
    {"resume", 2, resume, kFailed},
    {"run", 8, run, kAnywhere},
    {"state", 1, stated, kAnywhere},
    {"supervise", 5, supervise, kAnywhere},
    {"survey", 1, survey, 0},
    {"unpin", 1, unpinned, kAnywhere},
    {"verify", 1, verify, kFailed},
};

// Words of base64url, each ended by a NUL.
bool decode(const char* token, Words* words) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string bytes;
  unsigned bits = 0, held = 0;
  for (; *token != '\0'; ++token) {
    const char* at = std::strchr(kDigits, *token);
    if (at == nullptr) {
      return false;
    }
    bits = (bits << 6 | static_cast<unsigned>(at - kDigits)) & 0xffffffu;
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<char>(bits >> held & 0xffu));
    }
  }
  if (bytes.empty() || bytes.back() != '\0') {
    return false;
  }
  bytes.pop_back();
  *words = split(bytes, '\0');
  return true;
}

}  // namespace

int call(const Words& words) {
  for (const Command& command : kCommands) {
    if (words[0] == command.name && words.size() > command.words) {
      const bool there = command.without == kAnywhere || enter(words[1]);
      return there ? command.function(Words(words.begin() + 1, words.end())) : command.without;
    }
  }
  std::fprintf(stderr, "agent: no command %s with %zu words\n", words[0].c_str(), words.size() - 1);
  return kNotStarted;
}

std::wstring wide(const std::string& text) {
  const int size = static_cast<int>(text.size());
  std::wstring found(text.size(), L'\0');  // UTF-16 never has more units than UTF-8 has bytes
  found.resize(static_cast<size_t>(MultiByteToWideChar(CP_UTF8, 0, text.data(), size, found.data(), size)));
  return found;
}

std::string narrow(const std::wstring& text) {
  const int size = static_cast<int>(text.size()), most = 3 * size;
  std::string found(static_cast<size_t>(most), '\0');
  found.resize(static_cast<size_t>(
      WideCharToMultiByte(CP_UTF8, 0, text.data(), size, found.data(), most, nullptr, nullptr)));
  return found;
}

Words split(const std::string& text, char at) {
  Words found(1);
  for (const char c : text) {
    if (c == at) {
      found.emplace_back();
    } else {
      found.back().push_back(c);
    }
  }
  return found;
}

bool starts(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

unsigned long long number(const std::string& text) {
  const bool good = text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
  return good && !text.empty() ? std::stoull(text) : 0;
}

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

void complain(const std::string& what, const std::string& path) {
  const DWORD error = GetLastError();
  // The other side knows a full disk by these words, whatever the language of the system.
  const bool full = error == ERROR_DISK_FULL || error == ERROR_HANDLE_DISK_FULL;
  std::fprintf(stderr, "%s: %s: %s (Windows error %lu)\n", path.c_str(), what.c_str(),
               full ? "no space left on device" : "refused", error);
}

}  // namespace agent

int main(int count, char** words) {
  _setmode(_fileno(stdout), _O_BINARY);
  _setmode(_fileno(stderr), _O_BINARY);
  // No box on a screen that nobody sees.
  SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);
  // Comes before what the agent says, and behind what a profile or AutoRun printed
  // (deploy/transport/hearing.py).
  agent::say("@@slipway");
  std::fflush(stdout);
  std::fputs("@@slipway\n", stderr);
  agent::Words found;
  if (count != 2 || !agent::decode(words[1], &found)) {
    std::fputs("agent: one word in base64url, of words that each end with a NUL\n", stderr);
    return agent::kNotStarted;
  }
  const int code = agent::call(found);
  // Threads that wait for input must not keep it.
  if (std::fflush(stdout) != 0 && code == 0) {
    return agent::kFailed;
  }
  ExitProcess(static_cast<UINT>(code));
}
