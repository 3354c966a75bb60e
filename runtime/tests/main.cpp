#include <csignal>
#include <cstdio>
#include <cstring>

#include "check.h"

int main(int argc, char** argv) {
#ifdef SIGHUP
  // Tests send it to their children; who started us may have ignored it, as nohup does.
  std::signal(SIGHUP, SIG_DFL);
#endif
  const char* filter = argc > 1 ? argv[1] : "";
  int ran = 0;
  int failed = 0;
  for (const check::Test& test : check::tests()) {
    if (std::strstr(test.name, filter) == nullptr) {
      continue;
    }
    const int before = check::failures();
    test.body();
    ++ran;
    if (check::failures() != before) {
      std::fprintf(stderr, "FAILED %s\n", test.name);
      ++failed;
    }
  }
  std::printf("%d tests, %d failed\n", ran, failed);
  return failed == 0 && ran != 0 ? 0 : 1;
}
