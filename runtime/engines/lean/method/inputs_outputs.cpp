// What goes into a method and comes out of it, which inputs share their memory, and what the method says of
// itself: its kernels and, with a recorder, its times and values.
#include <xnnpack.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/platform.h"
#include "lean/method/method.h"
#include "lean/method/recorder.h"
#include "lean/xnnpack/xnn_delegate.h"

namespace slipway::lean {
namespace {

// Whether a tensor of that shape may be given where `view` is: of its rank, of its sizes where they are
// fixed, within every dimension's own bound where they are not. That its memory would hold it is not enough.
bool takes(const TensorView& view, const InputBytes& input) {
  bool good = view.dtype == input.dtype && input.rank == view.rank;
  for (std::size_t i = 0; good && i < view.rank; ++i) {
    const std::int64_t size = input.sizes[i];
    good = view.dynamism == Dynamism::kStatic
               ? size == view.bounds[i]
               : size >= 0 && (view.dynamism == Dynamism::kUnbounded || size <= view.bounds[i]);
  }
  return good;
}

// Puts the number (or None) back that the program was exported with, where that is what is given: the
// exporter has computed with it, so that another would change nothing. False when it is another one.
bool take_number(const pte::EValue& stored, const InputBytes& input, EValue* value) {
  const auto same = [&input](auto number) {
    return input.size == sizeof(number) && std::memcmp(&number, input.data, sizeof(number)) == 0;
  };
  if (const auto* integer = stored.val_as_Int()) {
    *value = integer->int_val();
    return same(integer->int_val());
  }
  if (const auto* real = stored.val_as_Double()) {
    *value = real->double_val();
    return same(real->double_val());
  }
  if (const auto* flag = stored.val_as_Bool()) {
    *value = flag->bool_val();
    return same(static_cast<std::uint8_t>(flag->bool_val() ? 1 : 0));
  }
  return (stored.val_type() == pte::KernelTypes::Null || stored.val_type() == pte::KernelTypes::NONE) &&
         input.dtype == DType::kNone;
}

// Whether kernels may read the elements where they are. Behind the last one they read what belongs to no
// tensor: on the same page of memory that is always possible.
bool readable_there(const TensorView& view, const InputBytes& input) {
  constexpr std::size_t kLeastPage = 4096;
  static_assert(kReadBehind >= XNN_EXTRA_BYTES, "XNNPACK reads further behind");
  const auto address = reinterpret_cast<std::uintptr_t>(input.data);
  return view.contiguous() && address % size_of(input.dtype) == 0 &&
         (input.readable >= input.size + kReadBehind ||
          (address + input.size - 1) / kLeastPage == (address + input.size - 1 + kReadBehind) / kLeastPage);
}

// "aten::add.out" is add.out to the Inspector; other libraries' operators keep their names' first half.
std::string native_name(const std::string& op) {
  constexpr char kAten[] = "aten::";
  return kNativeCall + (op.rfind(kAten, 0) == 0 ? op.substr(sizeof(kAten) - 1) : op);
}

}  // namespace

Status Method::set_input(std::size_t index, const Tensor& input) {
  const std::size_t size = input.bytes.size();
  return take_input(
      index,
      {input.dtype, input.shape.data(), input.shape.size(), input.bytes.data(), size, input.bytes.capacity()},
      read_in_place_[index], nullptr);
}

Status Method::give_input(std::size_t index, const InputBytes& input, bool* copied) {
  return take_input(index, input, true, copied);
}

Status Method::take_input(std::size_t index, const InputBytes& input, bool in_place, bool* copied) {
  const std::int32_t value_index = item_of(plan_->inputs(), index);
  const auto wrong = [index] {
    return Status(Code::kInput, "Input " + std::to_string(index) + " is not what the method takes.",
                  "compare with pte_runner --describe");
  };
  EValue& value = values_[static_cast<std::size_t>(value_index)];
  const pte::EValue& stored = *item_of(plan_->values(), value_index);
  if (stored.val_type() != pte::KernelTypes::Tensor) {
    return take_number(stored, input, &value) ? Status() : wrong();
  }
  auto* view = std::get_if<TensorView>(&value);
  if (view == nullptr || !takes(*view, input)) {
    return wrong();
  }
  view->data = input_memory_[index].first;
  view->capacity = input_memory_[index].second;
  if (view->constant || !std::equal(input.sizes, input.sizes + input.rank, view->sizes.begin())) {
    const Status resized = resize(view, input.sizes, input.rank);
    if (!resized.ok()) {
      return {Code::kInput, resized.message(), resized.fix()};
    }
  }
  if (view->bytes() != input.size || view->bytes() > view->capacity) {
    return wrong();
  }
  if (input.size == 0) {
    return {};
  }
  if (in_place && !shared_inputs_[index] && readable_there(*view, input)) {
    // const_cast: a method that writes to its input writes to the caller's.
    view->data = const_cast<std::uint8_t*>(input.data);
    view->capacity = input.size;
    return {};
  }
  if (copied != nullptr) {
    *copied = true;
  }
  if (view->contiguous()) {
    std::memcpy(view->data, input.data, input.size);
  } else {
    const std::vector<std::uint8_t> order(view->order.begin(), view->order.begin() + view->rank);
    const auto reordered = to_memory_order(std::vector<std::uint8_t>(input.data, input.data + input.size),
                                           view->shape(), order, size_of(input.dtype));
    std::memcpy(view->data, reordered.data(), reordered.size());
  }
  return {};
}

const TensorView* Method::output_in_place(std::size_t index) const {
  const auto value = static_cast<std::size_t>(item_of(plan_->outputs(), index));
  const auto* view = std::get_if<TensorView>(&values_[value]);
  const bool plain =
      view != nullptr && view->dtype != DType::kUnknown && view->data != nullptr && view->contiguous();
  return plain ? view : nullptr;
}

bool Method::fixed_shapes() const {
  return std::all_of(values_.begin(), values_.end(), [](const EValue& value) {
    const auto* view = std::get_if<TensorView>(&value);
    return view == nullptr || view->dynamism == Dynamism::kStatic;
  });
}

Result<Tensor> Method::output(std::size_t index) const {
  const EValue& value = values_[static_cast<std::size_t>(item_of(plan_->outputs(), index))];
  if (const auto* view = std::get_if<TensorView>(&value);
      view != nullptr && view->dtype != DType::kUnknown && view->data != nullptr) {
    // A damaged file may name a large tensor as an output many times.
    SLIPWAY_RETURN_IF_ERROR(check_room(view->bytes(), "output " + std::to_string(index)));
    return tensor_of(*view);
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return scalar(DType::kInt64, *integer);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return scalar(DType::kFloat64, *real);
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return scalar<std::uint8_t>(DType::kBool, *flag ? 1 : 0);
  }
  if (std::holds_alternative<std::monostate>(value)) {
    return Tensor{DType::kNone, {}, {}};
  }
  return Status(Code::kExecution, "Output " + std::to_string(index) + " has no form outside the runtime.",
                "export the model with tensors and numbers of plain types as outputs");
}

std::vector<Method::FirstUse> Method::first_uses() const {
  std::vector<FirstUse> uses(values_.size());
  std::size_t when = 0;
  bool jumps = false;  // what follows may be left out
  const auto use = [&](std::int64_t index, Use how) {
    if (index >= 0 && uses[static_cast<std::size_t>(index)].how == Use::kNone) {
      uses[static_cast<std::size_t>(index)] = {jumps ? Use::kRead : how, ++when};
    }
  };
  const auto use_all = [&](std::int32_t index, Use how) {
    // A list's tensors are used with it the first time: a damaged file may name a long one many times.
    const bool again = uses[static_cast<std::size_t>(index)].how != Use::kNone;
    use(index, how);
    const auto* list = std::get_if<TensorList>(&values_[static_cast<std::size_t>(index)]);
    for (std::size_t i = 0; list != nullptr && !again && i < list->items.size(); ++i) {
      use(list->items[i], how);
    }
  };
  for (const Instruction& instruction : instructions_) {
    const std::int32_t* arguments = instruction.arguments;
    if (instruction.action == Action::kKernel) {
      for (std::size_t i = 0; i < instruction.count; ++i) {
        use_all(arguments[i], i < instruction.outputs ? Use::kRead : Use::kWritten);
      }
    } else if (is_delegate(instruction)) {
      for (const bool written : {false, true}) {
        for (std::size_t i = 0; i < instruction.count; ++i) {
          if (instruction.delegate->produces(i) == written) {
            use(arguments[i], written ? Use::kWritten : Use::kRead);
          }
        }
      }
    } else if (instruction.action == Action::kMove) {
      use(static_cast<std::int64_t>(instruction.from), Use::kRead);
      use(static_cast<std::int64_t>(instruction.to), Use::kWritten);
    } else if (instruction.action == Action::kJumpFalse) {
      use(static_cast<std::int64_t>(instruction.from), Use::kRead);
      jumps = true;
    }
  }
  for (const std::int32_t output : *plan_->outputs()) {
    use(output, Use::kRead);
  }
  return uses;
}

// An exporter leaves out a view of an input: it is a value of its own in the same memory, which no
// instruction writes. Such an input is copied to that memory, wherever it is given. Values that take the
// memory later, when nobody needs the input any more, are written before they are read.
void Method::find_shared_inputs() {
  const std::vector<FirstUse> uses = first_uses();
  for (std::size_t i = 0; i < input_memory_.size(); ++i) {
    const auto own = static_cast<std::size_t>(item_of(plan_->inputs(), i));
    const auto [memory, size] = input_memory_[i];
    bool shared = false;
    for (std::size_t value = 0; value < values_.size(); ++value) {
      const auto* view = std::get_if<TensorView>(&values_[value]);
      shared = shared || (view != nullptr && value != own && uses[value].how == Use::kRead &&
                          view->data < memory + size && memory < view->data + view->capacity);
    }
    shared_inputs_.push_back(shared);
  }
}

// Exporters leave out views of other values, too: what was written under another name before is no state.
std::vector<std::pair<std::uint8_t*, std::size_t>> Method::state() const {
  std::vector<FirstUse> uses = first_uses();
  for (const std::int32_t input : *plan_->inputs()) {
    uses[static_cast<std::size_t>(input)] = {Use::kWritten, 0};
  }
  const auto view_at = [&](std::size_t index, Use how) {
    const auto* view = uses[index].how == how ? std::get_if<TensorView>(&values_[index]) : nullptr;
    return view == nullptr || view->constant || view->capacity == 0 ? nullptr : view;
  };
  std::vector<std::pair<std::uint8_t*, std::size_t>> found;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const TensorView* view = view_at(i, Use::kRead);
    bool left = view != nullptr;
    for (std::size_t j = 0; left && j < values_.size(); ++j) {
      const TensorView* other = view_at(j, Use::kWritten);
      left = other == nullptr || uses[j].when > uses[i].when || other->data >= view->data + view->capacity ||
             view->data >= other->data + other->capacity;
    }
    if (left) {
      found.emplace_back(view->data, view->capacity);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::pair<std::uint8_t*, std::size_t>> joined;
  for (const auto& [data, size] : found) {
    if (joined.empty() || data >= joined.back().first + joined.back().second) {
      joined.emplace_back(data, size);
    } else {
      const std::size_t end = static_cast<std::size_t>(data - joined.back().first) + size;
      joined.back().second = std::max(joined.back().second, end);
    }
  }
  return joined;
}

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
    if (const std::optional<Fallback> found = delegate->fallback()) {
      all.push_back(*found);
    }
  }
  return all;
}

void Method::record(const Instruction& instruction, std::size_t index, std::uint64_t start) {
  if (instruction.action == Action::kKernel) {
    recorder_->add_kernel(instruction.kernel->name, index, start);
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
      recorder_->add_value(instruction.kernel->name, index, -1, tensor_of(*view));
    }
  }
}

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
