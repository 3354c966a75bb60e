// What both programs measure alike: the ways to run a method, in turns, so that what else the machine does
// meets all.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

// A way to run the method once; false when it failed.
struct Way {
  const char* name;
  std::function<bool()> once;
};

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// Prints each way's median as JSON, in nanoseconds of one execution. `block` executions of one way follow one
// another and are timed as a whole: reading the clock takes as long as what is measured.
inline void measure(const std::vector<Way>& ways, int blocks, int block) {
  std::vector<std::vector<double>> found(ways.size());
  for (int i = -blocks / 10 - 1; i < blocks; ++i) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const auto start = std::chrono::steady_clock::now();
      for (int n = 0; n < block; ++n) {
        if (!ways[w].once()) {
          fail(std::string(ways[w].name) + " failed");
        }
      }
      const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
      if (i >= 0) {  // what comes before warms up
        found[w].push_back(elapsed.count() / block);
      }
    }
  }
  std::printf("{");
  for (std::size_t w = 0; w < ways.size(); ++w) {
    std::sort(found[w].begin(), found[w].end());
    std::printf("%s\"%s\": %.1f", w == 0 ? "" : ", ", ways[w].name, found[w][found[w].size() / 2]);
  }
  std::printf("}\n");
}

// A file's bytes, at an address that every kernel may read from, with room behind.
inline std::vector<std::int64_t> read_elements(const char* path, std::size_t* bytes) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> read{std::istreambuf_iterator<char>(file), {}};
  if (read.empty()) {
    fail(std::string(path) + " has no bytes");
  }
  *bytes = read.size();
  std::vector<std::int64_t> room(read.size() / sizeof(std::int64_t) + 1 + 512);
  std::copy(read.begin(), read.end(), reinterpret_cast<char*>(room.data()));
  return room;
}
