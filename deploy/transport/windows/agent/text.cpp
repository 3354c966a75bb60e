// Words, texts and streams.

#include "agent.h"

#include <cstdio>

namespace agent {

bool decode(const std::string& token, Words* words) {
  std::string bytes;
  unsigned bits = 0, held = 0;
  for (const char c : token) {
    unsigned value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<unsigned>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<unsigned>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      value = static_cast<unsigned>(c - '0') + 52;
    } else if (c == '-') {
      value = 62;
    } else if (c == '_') {
      value = 63;
    } else {
      return false;
    }
    bits = (bits << 6 | value) & 0xffffffu;
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

std::wstring wide(const std::string& text) {
  const int length = MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), nullptr, 0);
  std::wstring found(static_cast<size_t>(length), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), static_cast<int>(text.size()), found.data(), length);
  return found;
}

std::string narrow(const std::wstring& text) {
  const int size = static_cast<int>(text.size());
  const int length = WideCharToMultiByte(CP_UTF8, 0, text.data(), size, nullptr, 0, nullptr, nullptr);
  std::string found(static_cast<size_t>(length), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text.data(), size, found.data(), length, nullptr, nullptr);
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

bool digits(const std::string& text) {
  return !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
}

bool hex(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string::npos;
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
