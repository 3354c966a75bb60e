#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <algorithm>
#include <csignal>
#include <cwchar>
#include <utility>

#include "base/platform.h"
#include "base/text.h"
#include "runner/crash_guard.h"

namespace slipway {
namespace {

struct Prepared {
  AllLastWords words;
  std::wstring path;
  std::wstring temporary;
};

Prepared& prepared() {
  static Prepared instance;
  return instance;
}

LPTOP_LEVEL_EXCEPTION_FILTER g_before_filter = nullptr;
using SignalHandler = void (*)(int);
SignalHandler g_before_abort = SIG_DFL;

void write_text(HANDLE file, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    DWORD written = 0;
    if (::WriteFile(file, text.data() + done, static_cast<DWORD>(text.size() - done), &written, nullptr) ==
            0 ||
        written == 0) {
      return;
    }
    done += written;
  }
}

[[noreturn]] void end(Ending ending) {
  const Prepared& crash = prepared();
  const LastWords& words = crash.words[static_cast<std::size_t>(ending)];
  write_text(::GetStdHandle(STD_ERROR_HANDLE), words.text);
  if (!words.json.empty() && crash.path.empty()) {
    write_text(::GetStdHandle(STD_OUTPUT_HANDLE), words.json);
  } else if (!words.json.empty()) {
    HANDLE file = ::CreateFileW(crash.temporary.c_str(), GENERIC_WRITE, 0, nullptr, CREATE_ALWAYS,
                                FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file != INVALID_HANDLE_VALUE) {
      write_text(file, words.json);
      ::CloseHandle(file);
      ::MoveFileExW(crash.temporary.c_str(), crash.path.c_str(), MOVEFILE_REPLACE_EXISTING);
    }
  }
  ::TerminateProcess(::GetCurrentProcess(), static_cast<UINT>(words.code));
  for (;;) {
    ::Sleep(INFINITE);  // until it has ended
  }
}

Ending ending_of(DWORD exception) {
  switch (exception) {
    case EXCEPTION_ILLEGAL_INSTRUCTION:
    case EXCEPTION_PRIV_INSTRUCTION:
      return Ending::kInstruction;
    case EXCEPTION_IN_PAGE_ERROR:
    case EXCEPTION_DATATYPE_MISALIGNMENT:
      return Ending::kBus;
    case EXCEPTION_INT_DIVIDE_BY_ZERO:
    case EXCEPTION_INT_OVERFLOW:
    case EXCEPTION_FLT_DIVIDE_BY_ZERO:
    case EXCEPTION_FLT_INVALID_OPERATION:
      return Ending::kArithmetic;
    default:
      return Ending::kSegment;
  }
}

LONG WINAPI on_exception(EXCEPTION_POINTERS* what) {
  end(ending_of(what->ExceptionRecord->ExceptionCode));
}

void on_abort_signal(int /*signal_number*/) {
  end(Ending::kAbort);
}

}  // namespace

CrashGuard::CrashGuard(AllLastWords words, const std::string& json_path) {
  prepared() = {std::move(words), to_wide(json_path), to_wide(json_path + ".crash")};
  // A crash may be an overflow of the stack: some of it is kept for the handler.
  ULONG kept = 32 * 1024;
  ::SetThreadStackGuarantee(&kept);
  g_before_filter = ::SetUnhandledExceptionFilter(on_exception);
  g_before_abort = std::signal(SIGABRT, on_abort_signal);
}

CrashGuard::~CrashGuard() {
  ::SetUnhandledExceptionFilter(g_before_filter);
  std::signal(SIGABRT, g_before_abort);
}

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
