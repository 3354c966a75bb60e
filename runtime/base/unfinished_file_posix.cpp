#include "base/unfinished_file.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <utility>

namespace slipway {
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
