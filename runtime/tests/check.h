// The words of these tests, on doctest: TEST(name) { CHECK(...); }.
#pragma once

// Its own names are too common: ours are these five.
#define DOCTEST_CONFIG_NO_SHORT_MACRO_NAMES
#include <doctest/doctest.h>

// What nearly every test needs of the standard library.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Tests are numbered by __COUNTER__, which newer Clang calls an extension where the macro TEST is used.
#if defined(__clang__)
#if __has_warning("-Wc2y-extensions")
#pragma clang diagnostic ignored "-Wc2y-extensions"
#endif
#endif

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
