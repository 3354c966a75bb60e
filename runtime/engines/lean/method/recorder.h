// What a method does and when, for profiles.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etdump.h"

namespace slipway::lean {

// A part of a delegate's work and how long it took.
struct OperatorTime {
  std::string name;
  std::uint64_t nanoseconds = 0;
};

class Recorder {
 public:
  static std::uint64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
  }

  void begin(const char* block) { blocks_.push_back({block, {}}); }
  // Something of the method as a whole, which ends now.
  void add(const char* name, std::uint64_t start) { push({name, false, -1, 0, start, now()}); }
  // An instruction that ends now.
  void add_kernel(const std::string& name, std::size_t instruction, std::uint64_t start);
  void add_delegate(const std::vector<OperatorTime>& operators, std::size_t instruction, std::uint64_t start,
                    std::uint64_t end);

  const std::vector<TraceBlock>& blocks() const { return blocks_; }

 private:
  void push(TraceEvent event) { blocks_.back().events.push_back(std::move(event)); }

  std::vector<TraceBlock> blocks_;
};

}  // namespace slipway::lean
