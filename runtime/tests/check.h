// A test harness of the smallest kind: TEST(name) { CHECK(...); } registers itself, main() runs all, or those
// whose names contain its argument.
#pragma once

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> registered;
  return registered;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  ++failures();
}

template <typename A, typename B>
void equal(const A& got, const B& expected, const char* text, const char* file, int line) {
  if (!(got == expected)) {
    std::ostringstream message;
    message << text << " is " << got << ", expected " << expected;
    fail(file, line, message.str());
  }
}

inline void contains(const std::string& text, const std::string& part, const char* file, int line) {
  if (text.find(part) == std::string::npos) {
    fail(file, line, "'" + text + "' does not contain '" + part + "'");
  }
}

}  // namespace check

#define TEST(name)                                           \
  static void name();                                        \
  static const check::Register register_##name(#name, name); \
  static void name()

#define CHECK(condition)                                        \
  do {                                                          \
    if (!(condition)) {                                         \
      check::fail(__FILE__, __LINE__, "not true: " #condition); \
    }                                                           \
  } while (false)

#define CHECK_EQUAL(got, expected) check::equal(got, expected, #got, __FILE__, __LINE__)
#define CHECK_CONTAINS(text, part) check::contains(text, part, __FILE__, __LINE__)
