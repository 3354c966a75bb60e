// The file system, below the working folder; paths have forward slashes.

#include "agent.h"

#include <bcrypt.h>

#include <algorithm>

namespace agent {

namespace {

constexpr DWORD kShared = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

class Handle {
 public:
  explicit Handle(HANDLE handle) : handle_(handle) {}
  ~Handle() {
    if (good()) {
      CloseHandle(handle_);
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  bool good() const { return handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

HANDLE opened(const std::string& path, DWORD access, DWORD disposition = OPEN_EXISTING) {
  const DWORD flags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
  return CreateFileW(native(path).c_str(), access, kShared, nullptr, disposition, flags, nullptr);
}

DWORD attributes(const std::string& path) {
  return GetFileAttributesW(native(path).c_str());
}

bool information(const std::string& path, BY_HANDLE_FILE_INFORMATION* found) {
  const Handle file(opened(path, FILE_READ_ATTRIBUTES));
  return file.good() && GetFileInformationByHandle(file.get(), found) != 0;
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

std::string full_path(const std::string& path) {
  const std::wstring name = native(path);
  std::wstring found(GetFullPathNameW(name.c_str(), 0, nullptr, nullptr), L'\0');
  found.resize(GetFullPathNameW(name.c_str(), static_cast<DWORD>(found.size()), found.data(), nullptr));
  return shown(found);
}

bool exists(const std::string& path) {
  return attributes(path) != INVALID_FILE_ATTRIBUTES;
}

bool is_folder(const std::string& path) {
  const DWORD found = attributes(path);
  return found != INVALID_FILE_ATTRIBUTES && (found & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

bool is_link(const std::string& path) {
  const DWORD found = attributes(path);
  return found != INVALID_FILE_ATTRIBUTES && (found & FILE_ATTRIBUTE_REPARSE_POINT) != 0;
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
  if (search == INVALID_HANDLE_VALUE) {
    return found;
  }
  do {
    const std::string name = narrow(entry.cFileName);
    if (name != "." && name != "..") {
      found.push_back(name);
    }
  } while (FindNextFileW(search, &entry) != 0);
  FindClose(search);
  std::sort(found.begin(), found.end());
  return found;
}

bool remove_all(const std::string& path) {
  const DWORD found = attributes(path);
  if (found == INVALID_FILE_ATTRIBUTES) {
    return true;
  }
  if ((found & FILE_ATTRIBUTE_DIRECTORY) != 0 && (found & FILE_ATTRIBUTE_REPARSE_POINT) == 0) {
    for (const std::string& name : names_in(path)) {
      remove_all(path + "/" + name);
    }
    return RemoveDirectoryW(native(path).c_str()) != 0;
  }
  return ((found & FILE_ATTRIBUTE_DIRECTORY) != 0 ? RemoveDirectoryW(native(path).c_str())
                                                  : DeleteFileW(native(path).c_str())) != 0;
}

bool move_over(const std::string& from, const std::string& to) {
  const DWORD flags = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
  return MoveFileExW(native(from).c_str(), native(to).c_str(), flags) != 0;
}

bool read_text(const std::string& path, std::string* text) {
  const Handle file(opened(path, GENERIC_READ));
  if (!file.good()) {
    return false;
  }
  text->assign(4096, '\0');  // no such text of ours is longer
  DWORD count = 0;
  const bool good =
      ReadFile(file.get(), text->data(), static_cast<DWORD>(text->size()), &count, nullptr) != 0;
  text->resize(count);
  return good;
}

bool write_text(const std::string& path, const std::string& text) {
  bool good = false;
  {
    const Handle file(opened(path + ".part", GENERIC_WRITE, CREATE_ALWAYS));
    DWORD count = 0;
    good = file.good() &&
           WriteFile(file.get(), text.data(), static_cast<DWORD>(text.size()), &count, nullptr) != 0 &&
           count == text.size() && FlushFileBuffers(file.get()) != 0;
  }
  if (!good || !move_over(path + ".part", path)) {
    complain("writing", path);
    return false;
  }
  return true;
}

bool sync_file(const std::string& path) {
  const Handle file(opened(path, GENERIC_WRITE));
  return file.good() && FlushFileBuffers(file.get()) != 0;
}

bool same_file(const std::string& one, const std::string& other) {
  BY_HANDLE_FILE_INFORMATION a, b;
  return information(one, &a) && information(other, &b) && a.dwVolumeSerialNumber == b.dwVolumeSerialNumber &&
         a.nFileIndexHigh == b.nFileIndexHigh && a.nFileIndexLow == b.nFileIndexLow;
}

long long size_of(const std::string& path) {
  BY_HANDLE_FILE_INFORMATION found;
  if (!information(path, &found) || (found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0) {
    return -1;
  }
  return static_cast<long long>(found.nFileSizeHigh) << 32 | found.nFileSizeLow;
}

// A file's size, and what changes whenever its bytes do: its index on the volume, and the times of its last
// change to bytes and to itself, in units of 100 ns.
bool look(const std::string& path) {
  const Handle file(opened(path, FILE_READ_ATTRIBUTES));
  BY_HANDLE_FILE_INFORMATION found;
  FILE_BASIC_INFO times;
  if (!file.good() || GetFileInformationByHandle(file.get(), &found) == 0 ||
      GetFileInformationByHandleEx(file.get(), FileBasicInfo, &times, sizeof times) == 0) {
    return false;
  }
  const auto joined = [](DWORD high, DWORD low) {
    return std::to_string(static_cast<unsigned long long>(high) << 32 | low);
  };
  say("size " + joined(found.nFileSizeHigh, found.nFileSizeLow) + " " +
      joined(found.nFileIndexHigh, found.nFileIndexLow) + ":" + std::to_string(times.LastWriteTime.QuadPart) +
      " " + std::to_string(times.ChangeTime.QuadPart) + "; " + path);
  return true;
}

std::string digest(const std::string& path) {
  const Handle file(opened(path, GENERIC_READ));
  BCRYPT_ALG_HANDLE algorithm = nullptr;
  BCRYPT_HASH_HANDLE hash = nullptr;
  if (!file.good() || BCryptOpenAlgorithmProvider(&algorithm, BCRYPT_SHA256_ALGORITHM, nullptr, 0) != 0) {
    return "unable";
  }
  bool good = BCryptCreateHash(algorithm, &hash, nullptr, 0, nullptr, 0, 0) == 0;
  std::vector<unsigned char> piece(1 << 18);
  DWORD count = 0;
  while (good) {
    good = ReadFile(file.get(), piece.data(), static_cast<DWORD>(piece.size()), &count, nullptr) != 0;
    if (count == 0) {
      break;
    }
    good = good && BCryptHashData(hash, piece.data(), count, 0) == 0;
  }
  unsigned char sum[32];
  good = good && BCryptFinishHash(hash, sum, sizeof sum, 0) == 0;
  if (hash != nullptr) {
    BCryptDestroyHash(hash);
  }
  BCryptCloseAlgorithmProvider(algorithm, 0);
  std::string found;
  for (const unsigned char byte : sum) {
    found += "0123456789abcdef"[byte >> 4];
    found += "0123456789abcdef"[byte & 15];
  }
  return good ? found : "unable";
}

}  // namespace agent
