#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

TEST_CASE("a sum") {
  CHECK_EQ(2 + 2, 4);
}

// Fails on purpose: a framework that sees nothing wrong would pass it.
TEST_CASE("a wrong sum" * doctest::skip()) {
  CHECK_EQ(2 + 2, 5);
}

int main() {
  doctest::Context right;
  right.setOption("minimal", true);
  doctest::Context wrong;
  wrong.setOption("minimal", true);
  wrong.setOption("no-skip", true);
  const bool found = right.run() == 0 && wrong.run() != 0;
  std::printf("doctest: %s\n", found ? "a right sum passes, a wrong one fails" : "it cannot tell sums apart");
  return found ? 0 : 1;
}
