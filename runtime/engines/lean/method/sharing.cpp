// Which inputs other values share their memory with.
#include <algorithm>

#include "lean/method/method.h"

namespace slipway::lean {
namespace {

// What the first instruction with a value does.
enum class FirstUse : std::uint8_t { kNone, kRead, kWritten };

const std::vector<std::int32_t>* list_at(const std::vector<EValue>& values, std::int32_t index) {
  const auto* list = std::get_if<TensorList>(&values[static_cast<std::size_t>(index)]);
  return list == nullptr ? nullptr : &list->items;
}

// Where a kernel's outputs begin among its arguments: the exporter appends what the kernel returns, which is
// its output or a list of them, once more. A kernel that works in place has no output: all of it is read.
std::size_t outputs_begin(const std::vector<EValue>& values, const std::int32_t* arguments,
                          std::size_t count) {
  if (count <= 2) {
    return count;
  }
  const std::int32_t returned = arguments[count - 1];
  if (arguments[count - 2] == returned) {
    return count - 2;
  }
  const std::vector<std::int32_t>* list = list_at(values, returned);
  if (list == nullptr || list->empty()) {
    return count;
  }
  const std::vector<std::int32_t>* before = list_at(values, arguments[count - 2]);
  if (before != nullptr && *before == *list) {
    return count - 2;
  }
  const bool fits = count - 1 > list->size();
  const std::size_t begin = fits ? count - 1 - list->size() : count;
  return fits && std::equal(list->begin(), list->end(), arguments + begin) ? begin : count;
}

}  // namespace

// An exporter leaves out a view of an input: it is a value of its own in the same memory, which no
// instruction writes. Such an input is copied to that memory, wherever it is given. Values that take the
// memory later, when nobody needs the input any more, are written before they are read.
void Method::find_shared_inputs() {
  std::vector<FirstUse> uses(values_.size(), FirstUse::kNone);
  bool jumps = false;  // what follows may be left out
  const auto use = [&](std::int64_t index, FirstUse how) {
    if (index >= 0 && uses[static_cast<std::size_t>(index)] == FirstUse::kNone) {
      uses[static_cast<std::size_t>(index)] = jumps ? FirstUse::kRead : how;
    }
  };
  const auto use_all = [&](std::int32_t index, FirstUse how) {
    // A list's tensors are used with it the first time: a damaged file may name a long one many times.
    const bool again = uses[static_cast<std::size_t>(index)] != FirstUse::kNone;
    use(index, how);
    if (const std::vector<std::int32_t>* list = again ? nullptr : list_at(values_, index)) {
      for (const std::int32_t item : *list) {
        use(item, how);
      }
    }
  };
  for (const Instruction& instruction : instructions_) {
    const std::int32_t* arguments = instruction.arguments;
    if (instruction.action == Action::kKernel) {
      const std::size_t outputs = outputs_begin(values_, arguments, instruction.count);
      for (std::size_t i = 0; i < instruction.count; ++i) {
        use_all(arguments[i], i < outputs ? FirstUse::kRead : FirstUse::kWritten);
      }
    } else if (is_delegate(instruction)) {
      for (const bool written : {false, true}) {
        for (std::size_t i = 0; i < instruction.count; ++i) {
          if (instruction.delegate->produces(i) == written) {
            use(arguments[i], written ? FirstUse::kWritten : FirstUse::kRead);
          }
        }
      }
    } else if (instruction.action == Action::kMove) {
      use(static_cast<std::int64_t>(instruction.from), FirstUse::kRead);
      use(static_cast<std::int64_t>(instruction.to), FirstUse::kWritten);
    } else if (instruction.action == Action::kJumpFalse) {
      use(static_cast<std::int64_t>(instruction.from), FirstUse::kRead);
      jumps = true;
    }
  }
  for (const std::int32_t output : *plan_->outputs()) {
    use(output, FirstUse::kRead);
  }
  for (std::size_t i = 0; i < input_memory_.size(); ++i) {
    const auto own = static_cast<std::size_t>(plan_->inputs()->Get(static_cast<flatbuffers::uoffset_t>(i)));
    const auto [memory, size] = input_memory_[i];
    bool shared = false;
    for (std::size_t value = 0; value < values_.size(); ++value) {
      const auto* view = std::get_if<TensorView>(&values_[value]);
      shared = shared || (view != nullptr && value != own && uses[value] == FirstUse::kRead &&
                          view->data < memory + size && memory < view->data + view->capacity);
    }
    shared_inputs_.push_back(shared);
  }
}

}  // namespace slipway::lean
