// What a method does and when, for profiles.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etdump.h"
#include "slipway/tensor.h"

namespace slipway::lean {

struct OperatorTime;

class Recorder {
 public:
  // `values`: also keep the tensors that instructions and nodes of delegates give in the last execution.
  explicit Recorder(bool values) : keeps_values_(values) {}

  bool keeps_values() const { return keeps_values_; }
  static std::uint64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
  }

  void begin(const char* block);
  // Something of the method as a whole, which ends now.
  void add(const char* name, std::uint64_t start) { push({name, false, -1, 0, start, now()}); }
  // An instruction that ends now.
  void add_kernel(const std::string& name, std::size_t instruction, std::uint64_t start);
  void add_delegate(const std::vector<OperatorTime>& operators, std::size_t instruction, std::uint64_t start,
                    std::uint64_t end);

  // What the instruction itself gave: `node` is -1.
  void add_value(const std::string& name, std::size_t instruction, std::int32_t node, const Tensor& tensor);

  const std::vector<TraceBlock>& blocks() const { return blocks_; }
  // The bytes of all values.
  const std::vector<std::uint8_t>& values() const { return values_; }

 private:
  void push(TraceEvent event) { blocks_.back().events.push_back(std::move(event)); }

  bool keeps_values_;
  std::vector<TraceBlock> blocks_;
  std::vector<std::uint8_t> values_;
};

}  // namespace slipway::lean
