#include <stdarg.h>
#include <stdio.h>

// Debian compiles KleidiAI with glibc's fortified printf, which no other C library has. Its kernels call it
// in one place, to say why they abort. A C library that has its own keeps it: this one is weak.
__attribute__((weak)) int __fprintf_chk(FILE* stream, int flag, const char* format, ...);

int __fprintf_chk(FILE* stream, int flag, const char* format, ...) {
  (void)flag;
  va_list arguments;
  va_start(arguments, format);
  const int written = vfprintf(stream, format, arguments);
  va_end(arguments);
  return written;
}
