// What the calls of a method are given, against what their kernels and delegates take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lean/data/evalue.h"
#include "lean/kernels/kernel.h"
#include "lean/method/delegate.h"
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
  // that another of its results lies in, or that the call reads, but for what the kernel's row allows
  // (Sharing). kFile otherwise, with what is wrong. Outputs are the last of its arguments, from `outputs` on;
  // all of a kernel's that works in place are read.
  Status kernel(const KernelEntry& entry, const std::int32_t* arguments, std::size_t count,
                std::size_t instruction, std::size_t* outputs);
  // The same of a delegate's results, none of which is one of its inputs.
  Status delegate(const Delegate& delegate, const std::int32_t* arguments, std::size_t count,
                  std::size_t instruction);

 private:
  // Where a planned tensor lies, and which argument it is.
  struct Part {
    const std::uint8_t* begin;
    const std::uint8_t* end;
    std::int32_t value;
    std::size_t argument;
  };

  const EValue& value(std::int32_t index) const { return values_[static_cast<std::size_t>(index)]; }
  bool names_results(const KernelEntry& entry, const std::int32_t* arguments, std::size_t count) const;
  std::size_t outputs_begin(const KernelEntry& entry, const std::int32_t* arguments, std::size_t count) const;
  bool add(const std::int32_t* arguments, std::size_t argument, std::vector<Part>* parts);
  bool same_place(std::int32_t a, std::int32_t b) const;
  bool allowed(Sharing sharing, const Part& result, const Part& part) const;
  Status compare(const Call& call, Sharing sharing);

  const std::vector<EValue>& values_;
  std::size_t items_ = 0;  // of lists, looked at so far
  std::vector<Part> results_;
  std::vector<Part> others_;
};

}  // namespace slipway::lean
