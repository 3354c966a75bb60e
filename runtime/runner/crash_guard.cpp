#include "runner/crash_guard.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include <csignal>
#include <iterator>

#include "base/text.h"
#include "runner/report/report.h"

namespace slipway {
namespace {

constexpr char kReport[] =
    "report it with the program, this message and pte_runner --capabilities --json; to tell a defect of this "
    "device apart, run it once more, then with --cpu_threads 1, then on another device";

struct Words {
  const char* name;
  const char* meaning;
  const char* first;  // what to look at before it is reported
};

// In the order of Ending.
constexpr Words kWords[] = {
    {"SIGSEGV", "it touched memory that is not its own", ""},
    {"SIGBUS", "memory could not be read: a disk that failed, or a file that was cut short meanwhile",
     "see that nothing writes to the program's file, and that the device's log tells of no disk errors; "
     "else "},
    {"SIGILL", "an instruction that this processor does not have",
     "compare the processor with what the bundle needs (pte_runner --capabilities, ./inv targets); else "},
    {"SIGFPE", "it divided by zero", ""},
    {"SIGABRT", "a check inside of the engine failed", ""},
};
static_assert(std::size(kWords) == kEndings);

// What is left to say, made beforehand: the handler may call neither malloc nor stdio.
struct LastWords {
  std::string text;  // for standard error
  std::string json;  // empty: nobody wants it
};

struct Prepared {
  LastWords words[kEndings];
  std::string path;  // of the file for JSON; empty: standard output
};

Prepared& prepared() {
  static Prepared instance;
  return instance;
}

#ifdef SLIPWAY_SANITIZE

void watch(bool /*on*/) {}

#elif defined(_WIN32)

std::wstring& wide_path() {
  static std::wstring path;
  return path;
}

void write_text(HANDLE file, const std::string& text) {
  DWORD written = 0;
  ::WriteFile(file, text.data(), static_cast<DWORD>(text.size()), &written, nullptr);
}

[[noreturn]] void end(Ending ending) {
  const Prepared& crash = prepared();
  const LastWords& words = crash.words[static_cast<std::size_t>(ending)];
  write_text(::GetStdHandle(STD_ERROR_HANDLE), words.text);
  if (!words.json.empty() && crash.path.empty()) {
    write_text(::GetStdHandle(STD_OUTPUT_HANDLE), words.json);
  } else if (!words.json.empty()) {
    HANDLE file = ::CreateFileW(wide_path().c_str(), GENERIC_WRITE, 0, nullptr, CREATE_ALWAYS,
                                FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file != INVALID_HANDLE_VALUE) {
      write_text(file, words.json);
      ::CloseHandle(file);
    }
  }
  ::TerminateProcess(::GetCurrentProcess(), static_cast<UINT>(Code::kCrash));
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

void watch(bool on) {
  wide_path() = to_wide(prepared().path);
  // A crash may be an overflow of the stack: some of it is kept for the handler.
  ULONG kept = 32 * 1024;
  ::SetThreadStackGuarantee(&kept);
  ::SetUnhandledExceptionFilter(on ? on_exception : nullptr);
  std::signal(SIGABRT, on ? on_abort_signal : SIG_DFL);
}

#else

// In the order of Ending.
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
static_assert(std::size(kSignals) == kEndings);

// A crash may be an overflow of the stack, so the handler has one of its own.
alignas(16) char g_stack[64 * 1024];

void write_text(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written <= 0) {
      return;
    }
    done += static_cast<std::size_t>(written);
  }
}

void handle(int signal_number) {
  const Prepared& crash = prepared();
  const LastWords* words = &crash.words[0];
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    words = kSignals[i] == signal_number ? &crash.words[i] : words;
  }
  write_text(STDERR_FILENO, words->text);
  if (!words->json.empty()) {
    // Not through a link, and without waiting for somebody who reads a pipe.
    const int descriptor =
        crash.path.empty()
            ? STDOUT_FILENO
            : ::open(crash.path.c_str(),
                     O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, 0666);
    write_text(descriptor, words->json);
  }
  ::_exit(static_cast<int>(Code::kCrash));
}

void watch(bool on) {
  stack_t stack = {};
  stack.ss_sp = g_stack;
  stack.ss_size = sizeof(g_stack);
  ::sigaltstack(&stack, nullptr);
  for (const int number : kSignals) {
    struct sigaction action = {};
    action.sa_handler = on ? handle : SIG_DFL;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(number, &action, nullptr);
  }
}

#endif

}  // namespace

Status status_of(Ending ending, const std::string& doing) {
  const Words& words = kWords[static_cast<std::size_t>(ending)];
  return {Code::kCrash,
          std::string("The engine crashed (") + words.name + ") while it " + doing + ": " + words.meaning +
              ". This is a defect of Slipway or of this device.",
          std::string(words.first) + kReport,
          {words.name}};
}

CrashGuard::CrashGuard(const std::string& doing, const JsonWish& json) {
  for (std::size_t i = 0; i < kEndings; ++i) {
    const Status status = status_of(static_cast<Ending>(i), doing);
    prepared().words[i] = {printable(error_text(status)), json.wanted ? error_json(status) + "\n" : ""};
  }
  prepared().path = json.path;
  watch(true);
}

CrashGuard::~CrashGuard() {
  watch(false);
}

}  // namespace slipway
