// What the calls of a method are given, against what their kernels and delegates take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lean/kernels/kernel.h"
#include "lean/method/evalue.h"
#include "lean/xnnpack/delegate.h"
#include "slipway/status.h"

namespace slipway::lean {

// Which call a message is about.
struct Call {
  std::size_t instruction;
  const char* name;
};

class CallCheck {
 public:
  // Values as they are before the method runs; they must outlive the check.
  explicit CallCheck(const std::vector<EValue>& values) : values_(values) {}

  // As many arguments as the operator has, and perhaps its results once more behind them; no result in memory
  // that the call reads, or that another of its results lies in. kFile otherwise, with what is wrong.
  Status kernel(const KernelEntry& entry, const std::int32_t* arguments, std::size_t count,
                std::size_t instruction);
  // The same of a delegate's results, none of which is one of its inputs.
  Status delegate(const Delegate& delegate, const std::int32_t* arguments, std::size_t count,
                  std::size_t instruction);

 private:
  // Where a planned tensor lies.
  struct Part {
    const std::uint8_t* begin;
    const std::uint8_t* end;
    std::int32_t value;
  };

  const EValue& value(std::int32_t index) const { return values_[static_cast<std::size_t>(index)]; }
  bool names_results(const std::int32_t* arguments, std::size_t count) const;
  bool add(std::int32_t index, std::vector<Part>* parts);
  Status compare(const Call& call);

  const std::vector<EValue>& values_;
  std::size_t items_ = 0;  // of lists, looked at so far
  std::vector<Part> results_;
  std::vector<Part> others_;
};

}  // namespace slipway::lean
