// The words of these tests, on doctest: TEST(name) { CHECK(...); }.
#pragma once

// Its own names are too common: ours are these five.
#define DOCTEST_CONFIG_NO_SHORT_MACRO_NAMES
#include <doctest/doctest.h>

#include <string>

// Newer Clang calls __COUNTER__ an extension; a line has one test, so its number does as well.
#undef DOCTEST_ANONYMOUS
#define DOCTEST_ANONYMOUS(name) DOCTEST_CAT(name, __LINE__)

namespace check {

inline void contains(const std::string& text, const std::string& part, const char* file, int line) {
  if (text.find(part) == std::string::npos) {
    DOCTEST_ADD_FAIL_CHECK_AT(file, line, "'" << text << "' does not contain '" << part << "'");
  }
}

}  // namespace check

#define TEST(name) DOCTEST_TEST_CASE(#name)
// As a whole: doctest takes comparisons apart, and refuses && and ||.
#define CHECK(condition) DOCTEST_CHECK_UNARY(condition)
#define CHECK_EQUAL(got, expected) DOCTEST_CHECK_EQ(got, expected)
#define CHECK_CONTAINS(text, part) check::contains(text, part, __FILE__, __LINE__)
#define FAILED(message) DOCTEST_FAIL_CHECK((message))
