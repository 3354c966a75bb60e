#include "lean/method/recorder.h"

#include "lean/xnnpack/xnn_delegate.h"

namespace slipway::lean {
namespace {

// "aten::add.out" is add.out to the Inspector; other libraries' operators keep their names' first half.
std::string native_name(const std::string& op) {
  constexpr char kAten[] = "aten::";
  return kNativeCall + (op.rfind(kAten, 0) == 0 ? op.substr(sizeof(kAten) - 1) : op);
}

}  // namespace

void Recorder::begin(const char* block) {
  for (TraceBlock& before : blocks_) {
    before.values.clear();
  }
  values_.clear();
  blocks_.push_back({block, {}});
}

void Recorder::add_value(const std::string& name, std::size_t instruction, std::int32_t node,
                         const Tensor& tensor) {
  constexpr std::size_t kValueAlignment = 64;
  if (!has_stored_type(tensor.dtype)) {
    return;
  }
  values_.resize((values_.size() + kValueAlignment - 1) / kValueAlignment * kValueAlignment);
  blocks_.back().values.push_back({node < 0 ? native_name(name) : name, node,
                                   static_cast<std::int32_t>(instruction), tensor.dtype, tensor.shape,
                                   values_.size()});
  values_.insert(values_.end(), tensor.bytes.begin(), tensor.bytes.end());
}

void Recorder::add_kernel(const std::string& name, std::size_t instruction, std::uint64_t start) {
  const std::uint64_t end = now();
  const auto index = static_cast<std::int32_t>(instruction);
  push({native_name(name), false, 0, index, start, end});
  push({kOperatorCall, false, 0, index, start, end});
}

// XNNPACK tells how long its operators took, one after another, not when they began: they are put where the
// call ended, since what it does besides comes before them.
void Recorder::add_delegate(const std::vector<OperatorTime>& operators, std::size_t instruction,
                            std::uint64_t start, std::uint64_t end) {
  const auto index = static_cast<std::int32_t>(instruction);
  std::uint64_t total = 0;
  for (const OperatorTime& time : operators) {
    total += time.nanoseconds;
  }
  std::uint64_t at = end - start > total ? end - total : start;
  for (const OperatorTime& time : operators) {
    push({time.name, true, 0, index, at, at + time.nanoseconds});
    at += time.nanoseconds;
  }
  push({kDelegateCall, false, 0, index, start, end});
}

}  // namespace slipway::lean
