// What GCC's C++ library asks of a system, for a runner that has that library inside and runs on older ones.
//
// Its archive is Debian 12's. One variable of glibc 2.32 is all it needs beyond glibc 2.28, and its last
// words before std::terminate would bring a demangler of 50 KB along.

#include <cstdio>
#include <cstdlib>
#include <exception>

extern "C" {
extern char __libc_single_threaded;
// glibc says by it that there is one thread, so that counts of shared objects need no atomic instruction.
// Zero is always right.
char __libc_single_threaded = 0;
}

namespace __gnu_cxx {

// What std::terminate calls: the library's own also prints the exception's type.
void __verbose_terminate_handler() {
  try {
    if (std::current_exception()) throw;
    std::fputs("terminate called without an exception\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "terminate called after an exception: %s\n", error.what());
  } catch (...) {
    std::fputs("terminate called after an exception of another kind\n", stderr);
  }
  std::abort();
}

}  // namespace __gnu_cxx
