#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/platform.h"
#include "runner/crash_guard.h"

namespace slipway {
namespace {

// In the order of Ending.
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGXCPU};
static_assert(std::size(kSignals) == kEndings);

struct Prepared {
  AllLastWords words;
  std::string path;
  std::string temporary;  // empty when nothing may be renamed onto the path: /dev/null, a pipe, a link
};

Prepared& prepared() {
  static Prepared instance;
  return instance;
}

struct sigaction g_before[std::size(kSignals)];

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
  if (!words->json.empty() && crash.path.empty()) {
    write_text(STDOUT_FILENO, words->json);
  } else if (!words->json.empty()) {
    const bool whole = !crash.temporary.empty();
    const int flags =
        O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (whole ? O_CREAT | O_TRUNC | O_NOFOLLOW : 0);
    const int descriptor = ::open((whole ? crash.temporary : crash.path).c_str(), flags, 0666);
    struct stat status = {};
    if (descriptor >= 0 && ::fstat(descriptor, &status) == 0 &&
        (whole ? S_ISREG(status.st_mode) : S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode))) {
      write_text(descriptor, words->json);
      if (whole) {
        ::fsync(descriptor);
        ::rename(crash.temporary.c_str(), crash.path.c_str());
      }
    }
  }
  ::_exit(words->code);
}

// Sets a limit, unless the one that was there first is lower. The hard one stays, so that another call can
// allow more.
class Limit {
 public:
  explicit Limit(decltype(RLIMIT_CPU) resource) : resource_(resource) {
    known_ = ::getrlimit(resource_, &first_) == 0;
  }
  void set(std::uint64_t most) const {
    if (known_) {
      struct rlimit limit = first_;
      limit.rlim_cur =
          std::min(first_.rlim_cur, static_cast<rlim_t>(std::min<std::uint64_t>(most, RLIM_INFINITY - 1)));
      ::setrlimit(resource_, &limit);
    }
  }

 private:
  decltype(RLIMIT_CPU) resource_;
  struct rlimit first_ = {};
  bool known_ = false;
};

}  // namespace

CrashGuard::CrashGuard(AllLastWords words, const std::string& json_path) {
  struct stat status = {};
  const bool whole = ::lstat(json_path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
  prepared() = {std::move(words), json_path, whole ? json_path + ".crash" : std::string()};
  stack_t stack = {};
  stack.ss_sp = g_stack;
  stack.ss_size = sizeof(g_stack);
  ::sigaltstack(&stack, nullptr);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, &g_before[i]);
  }
}

CrashGuard::~CrashGuard() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], &g_before[i], nullptr);
  }
}

void limit_describing(std::uint64_t bytes) {
  static const Limit time(RLIMIT_CPU);
  time.set(kDescribeSeconds);
#ifdef SLIPWAY_SANITIZE
  static_cast<void>(bytes);  // the sanitizers' own memory is beyond all bounds
#else
  static const Limit memory(RLIMIT_DATA);
  memory.set(bytes);
#endif
}

namespace {

// The file to remove when a signal ends the process; only a signal handler reads it.
char g_unfinished[4096];
volatile std::sig_atomic_t g_unfinished_set = 0;

void remove_unfinished(int signal_number) {
  if (g_unfinished_set != 0) {
    ::unlink(g_unfinished);
  }
  // SA_RESETHAND has put the default action back: end as if there had been no handler.
  ::raise(signal_number);
}

void watch(const char* path) {
  g_unfinished_set = 0;
  if (path == nullptr || std::strlen(path) >= sizeof(g_unfinished)) {
    return;
  }
  std::memcpy(g_unfinished, path, std::strlen(path) + 1);
  g_unfinished_set = 1;
  static bool installed = false;
  if (!std::exchange(installed, true)) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction current = {};
      // One that is ignored (nohup, a background job) stays ignored.
      if (::sigaction(number, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
        struct sigaction action = {};
        action.sa_handler = remove_unfinished;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        sigemptyset(&action.sa_mask);
        ::sigaction(number, &action, nullptr);
      }
    }
  }
}

}  // namespace

void remove_unfinished_files() {
  watch_unfinished_files(watch);
}

}  // namespace slipway
