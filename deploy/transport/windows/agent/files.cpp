// The file system, below the working folder; paths have forward slashes.

#include "agent.h"

#include <bcrypt.h>

#include <algorithm>

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

}  // namespace agent
