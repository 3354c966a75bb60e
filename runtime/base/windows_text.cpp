#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "base/windows_text.h"

namespace slipway {

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
  std::string text = length == 0 ? "error " + std::to_string(error) : to_utf8(buffer);
  while (!text.empty() &&
         (text.back() == '.' || text.back() == '\r' || text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

}  // namespace slipway
