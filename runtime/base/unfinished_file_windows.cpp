#include "base/unfinished_file.h"

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <algorithm>
#include <cwchar>
#include <utility>

namespace slipway {
namespace {

// The file to remove when the console ends the process. The handler runs on a thread of its own.
wchar_t g_unfinished[4096];
volatile LONG g_unfinished_set = 0;

BOOL WINAPI remove_unfinished(DWORD /*event*/) {
  if (::InterlockedExchange(&g_unfinished_set, 0) != 0) {
    // It is open, but was opened so that it may be deleted.
    ::DeleteFileW(g_unfinished);
  }
  return FALSE;  // on to the default handler, which ends the process
}

void watch(const wchar_t* path) {
  ::InterlockedExchange(&g_unfinished_set, 0);
  if (path == nullptr || std::wcslen(path) >= sizeof(g_unfinished) / sizeof(g_unfinished[0])) {
    return;
  }
  std::copy(path, path + std::wcslen(path) + 1, g_unfinished);
  ::InterlockedExchange(&g_unfinished_set, 1);
  static bool installed = false;
  if (!std::exchange(installed, true)) {
    ::SetConsoleCtrlHandler(remove_unfinished, TRUE);
  }
}

}  // namespace

void remove_unfinished_files() {
  watch_unfinished_files(watch);
}

}  // namespace slipway
