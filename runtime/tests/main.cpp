#define DOCTEST_CONFIG_IMPLEMENT
// Tests start children that crash on purpose, and the runner has a handler of its own.
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include <csignal>

#include "check.h"

int main(int argc, char** argv) {
#ifdef SIGHUP
  // Tests send it to their children; who started us may have ignored it, as nohup does.
  std::signal(SIGHUP, SIG_DFL);
#endif
  return doctest::Context(argc, argv).run();
}
