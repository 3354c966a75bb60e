// What a method says of itself: its kernels and, with a recorder, its times and values.
#include <optional>
#include <utility>

#include "lean/method/method.h"

namespace slipway::lean {

std::vector<KernelUse> Method::kernels() const {
  std::vector<KernelUse> all;
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    if (is_delegate(instructions_[i])) {
      for (KernelUse& use : instructions_[i].delegate->kernels()) {
        use.node += " @" + std::to_string(i);
        all.push_back(std::move(use));
      }
    }
  }
  return all;
}

std::vector<Fallback> Method::fallbacks() const {
  std::vector<Fallback> all;
  if (!kHasXnnpack) {
    return all;
  }
  for (const auto& delegate : delegates_) {
    const std::optional<Fallback> found = delegate->fallback();
    if (found) {
      all.push_back(*found);
    }
  }
  return all;
}

void Method::record(const Instruction& instruction, std::size_t index, std::uint64_t start) {
  if (instruction.action == Action::kKernel) {
    recorder_->add_kernel(instruction.name, index, start);
  } else if (is_delegate(instruction)) {
    const std::uint64_t end = Recorder::now();
    recorder_->add_delegate(instruction.delegate->times(), index, start, end);
  }
  if (recorder_->keeps_values()) {
    record_values(instruction, index);
  }
}

// A kernel's last argument is its result.
void Method::record_values(const Instruction& instruction, std::size_t index) {
  if (is_delegate(instruction)) {
    for (const NodeValue& value : instruction.delegate->values()) {
      recorder_->add_value(value.kind, index, static_cast<std::int32_t>(value.node), value.tensor);
    }
  }
  if (instruction.action != Action::kKernel || instruction.count == 0) {
    return;
  }
  std::vector<std::int32_t> results{instruction.arguments[instruction.count - 1]};
  if (const auto* list = std::get_if<TensorList>(&values_[static_cast<std::size_t>(results.front())])) {
    results = list->items;
  }
  for (const std::int32_t result : results) {
    const auto* view =
        result < 0 ? nullptr : std::get_if<TensorView>(&values_[static_cast<std::size_t>(result)]);
    if (view != nullptr && view->data != nullptr && view->dtype != DType::kUnknown) {
      recorder_->add_value(instruction.name, index, -1, tensor_of(*view));
    }
  }
}

}  // namespace slipway::lean
