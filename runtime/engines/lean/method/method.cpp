#include "lean/method/method.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include "base/text.h"
#include "lean/method/calls.h"
#include "program_file.h"
#include "program_info.h"

namespace slipway::lean {
namespace {

Status no_memory(std::uint64_t bytes) {
  return {Code::kMemory, "There is no memory for the method: " + std::to_string(bytes) + " bytes wanted.",
          "use a smaller program or input, or a device with more memory"};
}

// Instructions: what is asked for while one computes is there when the next but one begins.
constexpr std::size_t kAhead = 2;
constexpr std::size_t kValueEnd = 64;  // bytes

template <typename Kind, typename Item>
Kind list_of(const flatbuffers::Vector<Item>* items) {
  Kind list;
  for (const Item item : *items) {
    list.items.push_back(static_cast<typename decltype(list.items)::value_type>(item));
  }
  return list;
}

}  // namespace

Result<std::unique_ptr<Method>> Method::load(const XnnContext& context, const DataStore& store,
                                             PackedWeights& weights, SharedArenas& shared,
                                             const std::string& name, Recorder* recorder) {
  const pte::ExecutionPlan* found = nullptr;
  for (const pte::ExecutionPlan* plan : *store.program().execution_plan()) {
    if (plan->name()->string_view() == name) {
      found = plan;
    }
  }
  if (found == nullptr) {
    return Status(Code::kUsage, "The program has no method " + name + ".",
                  "pte_runner --describe lists them");
  }
  std::unique_ptr<Method> method(new Method(context, store, weights, shared, *found, recorder));
  method->scratch_.threads = context.threads();
  std::vector<const KernelEntry*> kernels;
  SLIPWAY_RETURN_IF_ERROR(method->find_operators(&kernels));
  SLIPWAY_RETURN_IF_ERROR(method->make_arenas());
  SLIPWAY_RETURN_IF_ERROR(method->make_values());
  SLIPWAY_RETURN_IF_ERROR(method->make_delegates());
  SLIPWAY_RETURN_IF_ERROR(method->make_instructions(kernels));
  method->find_shared_inputs();
  method->find_lines();
  for (const std::int32_t input : *found->inputs()) {
    method->read_in_place_.push_back(method->only_delegates_read(input));
  }
  return Result<std::unique_ptr<Method>>(std::move(method));
}

// As much of each as a tensor lies in: what else the file plans for, nothing here uses.
Status Method::make_arenas() {
  const auto* sizes = plan_->non_const_buffer_sizes();
  const std::vector<std::size_t> used = arenas_used(*plan_);
  for (std::size_t i = 0; i < (sizes == nullptr ? 0 : sizes->size()); ++i) {
    const std::int64_t size = item_of(sizes, i);
    if (i == 0 || size == 0) {
      arenas_.push_back({});  // the first is reserved
      continue;
    }
    const std::size_t bytes = used[i];
    std::uint8_t* memory = shared_.has(i) ? shared_.memory(i) : memory_.allocate(bytes);
    if (memory == nullptr) {
      return no_memory(bytes);
    }
    arenas_.push_back({memory, bytes});
  }
  return {};
}

Status Method::make_values() {
  values_.resize(plan_->values()->size());
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const pte::EValue& stored = *item_of(plan_->values(), i);
    EValue& value = values_[i];
    if (const auto* tensor = stored.val_as_Tensor()) {
      TensorView view;
      SLIPWAY_RETURN_IF_ERROR(make_tensor(*tensor, i, &view));
      value = view;
    } else if (const auto* integer = stored.val_as_Int()) {
      value = integer->int_val();
    } else if (const auto* real = stored.val_as_Double()) {
      value = real->double_val();
    } else if (const auto* flag = stored.val_as_Bool()) {
      value = flag->bool_val();
    } else if (const auto* text = stored.val_as_String()) {
      value = text->string_val()->string_view();
    } else if (const auto* integers = stored.val_as_IntList()) {
      value = list_of<IntList>(integers->items());
    } else if (const auto* reals = stored.val_as_DoubleList()) {
      value = list_of<DoubleList>(reals->items());
    } else if (const auto* flags = stored.val_as_BoolList()) {
      value = list_of<BoolList>(flags->items());
    } else if (const auto* tensors = stored.val_as_TensorList()) {
      value = list_of<TensorList>(tensors->items());
    } else if (const auto* optional = stored.val_as_OptionalTensorList()) {
      value = list_of<TensorList>(optional->items());
    }
  }
  for (const std::int32_t index : *plan_->inputs()) {
    const auto* view = std::get_if<TensorView>(&values_[static_cast<std::size_t>(index)]);
    input_memory_.emplace_back(view == nullptr ? nullptr : view->data, view == nullptr ? 0 : view->capacity);
  }
  return {};
}

Status Method::make_tensor(const pte::Tensor& tensor, std::size_t index, TensorView* view) {
  view->dtype = to_dtype(tensor.scalar_type());
  view->rank = static_cast<std::uint8_t>(tensor.sizes() == nullptr ? 0 : tensor.sizes()->size());
  view->dynamism = dynamism_of(tensor.shape_dynamism());
  for (std::uint8_t i = 0; i < view->rank; ++i) {
    view->sizes[i] = view->bounds[i] = tensor.sizes()->Get(i);
    view->order[i] = tensor.dim_order()->Get(i);
  }
  const Status given = give_memory(tensor, index, view);
  const std::size_t size = element_size(tensor.scalar_type());
  if (given.ok() && reinterpret_cast<std::uintptr_t>(view->data) % size != 0) {
    return {Code::kFile, "Value " + std::to_string(index) + " lies across its elements' bounds.", kCopyAgain};
  }
  return given;
}

// Where a tensor's bytes are: in an arena (with an initial value, perhaps), among the program's constants, in
// the file of weights, or nowhere yet.
Status Method::give_memory(const pte::Tensor& tensor, std::size_t index, TensorView* view) {
  const pte::AllocationDetails* allocation = tensor.allocation_info();
  const pte::ExtraTensorInfo* extra = tensor.extra_tensor_info();
  const std::size_t bytes = view->count() * element_size(tensor.scalar_type());
  Bytes initial;
  if (extra != nullptr && extra->location() == pte::TensorDataLocation::EXTERNAL) {
    initial = store_.named(extra->fully_qualified_name()->string_view());
    if (initial.data == nullptr || initial.size < bytes) {
      const std::string name = extra->fully_qualified_name()->str();
      return {Code::kFile,
              "The weight " + name + " is not in the program.",
              "name the .ptd file that was exported with it (--data_path)",
              {name}};
    }
  } else if (tensor.data_buffer_idx() != 0) {
    initial = allocation == nullptr
                  ? store_.constant(tensor.data_buffer_idx())
                  : store_.initial(
                        extra == nullptr ? 0 : static_cast<std::size_t>(extra->mutable_data_segments_idx()),
                        tensor.data_buffer_idx());
  }
  if (allocation != nullptr) {
    const std::uint64_t offset =
        std::uint64_t{allocation->memory_offset_high()} << 32 | allocation->memory_offset_low();
    const Bytes arena = arenas_[allocation->memory_id()];
    // const_cast: arenas are ours to write.
    view->data = const_cast<std::uint8_t*>(arena.data) + static_cast<std::size_t>(offset);
    view->capacity = bytes;
    if (initial.data != nullptr && bytes != 0) {
      std::memcpy(view->data, initial.data, bytes);
    }
    return {};
  }
  if (initial.data != nullptr) {
    // const_cast: nobody writes to a constant; what would is refused when it tries (`constant`).
    view->data = const_cast<std::uint8_t*>(initial.data);
    view->capacity = bytes;
    view->constant = true;
    return {};
  }
  const auto named = [index](const flatbuffers::Vector<std::int32_t>& values) {
    return std::find(values.begin(), values.end(), static_cast<std::int32_t>(index)) != values.end();
  };
  // An input is copied here, an output that the exporter planned no memory for is written here.
  if (named(*plan_->inputs()) || named(*plan_->outputs())) {
    view->data = memory_.allocate(bytes);
    if (view->data == nullptr) {
      return no_memory(bytes);
    }
    view->capacity = bytes;
  }
  return {};
}

Status Method::find_operators(std::vector<const KernelEntry*>* kernels) const {
  std::vector<std::string> missing;
  for (std::size_t i = 0; plan_->operators() != nullptr && i < plan_->operators()->size(); ++i) {
    const std::string name = registered_name(*item_of(plan_->operators(), i));
    kernels->push_back(find_kernel(name));
    if (kernels->back() == nullptr) {
      missing.push_back(name);
    }
  }
  const std::set<std::string> others = operators_of_other_types(*plan_);
  std::copy_if(others.begin(), others.end(), std::back_inserter(missing), has_kernel);
  if (missing.empty()) {
    return {};
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return {
      Code::kMissingOperator, "This runner has no kernel for " + joined(missing) + ".",
      kSelective ? kRebuild : "delegate the operators, or use the engine executorch where the target has it",
      missing};
}

std::string Method::name_of_delegate(std::size_t index) const {
  return "Delegate " + std::to_string(index) + " of method " + plan_->name()->str();
}

Status Method::make_delegates() {
  std::vector<XnnPayload> payloads;
  for (std::size_t i = 0; plan_->delegates() != nullptr && i < plan_->delegates()->size(); ++i) {
    const pte::BackendDelegate& stored = *item_of(plan_->delegates(), i);
    const std::string backend = stored.id()->str();
    if (!kHasXnnpack || backend != kXnnpackBackend) {
      return {Code::kMissingBackend,
              "The program needs the backend " + backend + "; this runner has " +
                  (kHasXnnpack ? kXnnpackBackend : "none") + ".",
              kHasXnnpack ? "export the program for XNNPACK (XnnpackPartitioner)" : kRebuild,
              {backend}};
    }
    SLIPWAY_TRY(XnnPayload payload,
                XnnPayload::read(store_.delegate(*stored.processed()), store_, name_of_delegate(i)));
    weights_.plan(payload.constants());
    payloads.push_back(std::move(payload));
  }
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    SLIPWAY_TRY(delegates_.emplace_back(),
                Delegate::load(context_, weights_, std::move(payloads[i]), name_of_delegate(i),
                               recorder_ != nullptr, recorder_ != nullptr && recorder_->keeps_values()));
  }
  return {};
}

Status Method::make_instructions(const std::vector<const KernelEntry*>& kernels) {
  CallCheck calls(values_);
  for (const pte::Instruction* stored : instructions_of(*plan_)) {
    Instruction instruction;
    const auto take = [&instruction](Action action, const flatbuffers::Vector<std::int32_t>& arguments) {
      instruction.action = action;
      instruction.arguments = arguments.data();
      instruction.count = arguments.size();
    };
    if (const auto* call = stored->instr_args_as_KernelCall()) {
      take(Action::kKernel, *call->args());
      instruction.kernel = kernels[static_cast<std::size_t>(call->op_index())];
      SLIPWAY_RETURN_IF_ERROR(calls.kernel(*instruction.kernel, instruction.arguments, instruction.count,
                                           instructions_.size(), &instruction.outputs));
    } else if (const auto* delegated = stored->instr_args_as_DelegateCall()) {
      take(Action::kDelegate, *delegated->args());
      instruction.delegate = delegates_[static_cast<std::size_t>(delegated->delegate_index())].get();
      SLIPWAY_RETURN_IF_ERROR(calls.delegate(*instruction.delegate, instruction.arguments, instruction.count,
                                             instructions_.size()));
    } else if (const auto* moved = stored->instr_args_as_MoveCall()) {
      instruction.action = Action::kMove;
      instruction.from = static_cast<std::size_t>(moved->move_from());
      instruction.to = static_cast<std::size_t>(moved->move_to());
    } else if (const auto* jump = stored->instr_args_as_JumpFalseCall()) {
      instruction.action = Action::kJumpFalse;
      instruction.from = static_cast<std::size_t>(jump->cond_value_index());
      instruction.to = static_cast<std::size_t>(jump->destination_instruction());
    }
    instructions_.push_back(instruction);
  }
  return {};
}

// Nothing but delegates as what they compute from. Kernels may write to what they take, and views of it.
bool Method::only_delegates_read(std::int32_t value) const {
  const auto is = [value](auto one) { return static_cast<std::int64_t>(one) == value; };
  const auto in_list = [&](const EValue& one) {
    const auto* list = std::get_if<TensorList>(&one);
    return list != nullptr && std::any_of(list->items.begin(), list->items.end(), is);
  };
  const auto used_otherwise = [&](const Instruction& instruction) {
    for (std::size_t i = 0; i < instruction.count; ++i) {
      if (is(instruction.arguments[i]) && !(is_delegate(instruction) && !instruction.delegate->produces(i))) {
        return true;
      }
    }
    return instruction.action == Action::kMove && (is(instruction.from) || is(instruction.to));
  };
  return std::none_of(values_.begin(), values_.end(), in_list) &&
         std::none_of(plan_->outputs()->begin(), plan_->outputs()->end(), is) &&
         std::none_of(instructions_.begin(), instructions_.end(), used_otherwise);
}

Status Method::run_kernel(const Instruction& instruction) {
  Arguments arguments(&values_, instruction.arguments, instruction.count, &scratch_);
  const Status done = instruction.kernel->function(arguments);
  const Status& wrong = arguments.fault().ok() ? done : arguments.fault();
  if (wrong.ok()) {
    return {};
  }
  const std::string name = instruction.kernel->name;
  return {wrong.code(), name + ": " + wrong.message(), wrong.fix(), {name}};
}

Status Method::run_delegate(const Instruction& instruction) {
  if (!is_delegate(instruction)) {
    return {};
  }
  delegate_arguments_.clear();
  for (std::size_t i = 0; i < instruction.count; ++i) {
    TensorView* view = std::get_if<TensorView>(&values_[static_cast<std::size_t>(instruction.arguments[i])]);
    delegate_arguments_.push_back(view != nullptr && view->data != nullptr ? view : nullptr);
  }
  return instruction.delegate->execute(delegate_arguments_);
}

// The destination becomes the source. A tensor that has memory of its own takes the elements there: a view
// of the source's memory would see what the next branch or round writes there.
Status Method::move(const Instruction& instruction) {
  const auto* source = std::get_if<TensorView>(&values_[instruction.from]);
  auto* target = std::get_if<TensorView>(&values_[instruction.to]);
  const bool room = source != nullptr && target != nullptr && source->data != nullptr &&
                    target->data != nullptr && !target->constant && source->dtype == target->dtype &&
                    source->rank == target->rank && source->order == target->order;
  if (room && resize(target, source->shape()).ok() && target->bytes() <= target->capacity) {
    std::memmove(target->data, source->data, source->bytes());
    return {};
  }
  values_[instruction.to] = values_[instruction.from];
  return {};
}

Status Method::execute() {
  if (recorder_ == nullptr) {
    return run_instructions();
  }
  recorder_->begin(kExecuteBlock);
  const std::uint64_t start = Recorder::now();
  Status done = run_instructions();
  recorder_->add(kMethodExecute, start);
  return done;
}

void Method::find_lines() {
  for (const Instruction& instruction : instructions_) {
    for (std::size_t i = 0; i < instruction.count; ++i) {
      // A value's start has a tensor's sizes, its end where that lies and what kind of value it is.
      const EValue& value = values_[static_cast<std::size_t>(instruction.arguments[i])];
      const auto* begin = reinterpret_cast<const std::uint8_t*>(&value);
      add_lines(begin, 1, &lines_);
      add_lines(begin + sizeof(value) - kValueEnd, kValueEnd, &lines_);
    }
    if (is_delegate(instruction)) {
      instruction.delegate->add_lines(instruction.count, &lines_);
    }
    line_ends_.push_back(lines_.size());
  }
}

void Method::fetch(std::size_t instruction) const {
  for (std::size_t i = line_ends_[instruction - 1]; i < line_ends_[instruction]; ++i) {
    __builtin_prefetch(lines_[i]);
  }
}

Status Method::run_instructions() {
  std::size_t next = 0;
  unsigned jumps = 0;
  while (next < instructions_.size()) {
    const std::size_t index = next++;
    if (index + kAhead < instructions_.size()) {
      fetch(index + kAhead);
    }
    const Instruction& instruction = instructions_[index];
    const std::uint64_t start = recorder_ == nullptr ? 0 : Recorder::now();
    Status done;
    switch (instruction.action) {
      case Action::kKernel:
        done = run_kernel(instruction);
        break;
      case Action::kDelegate:
        done = run_delegate(instruction);
        break;
      case Action::kMove:
        done = move(instruction);
        break;
      case Action::kJumpFalse: {
        const EValue& condition = values_[instruction.from];
        bool holds = false;
        if (const auto* flag = std::get_if<bool>(&condition)) {
          holds = *flag;
        } else if (const auto* view = std::get_if<TensorView>(&condition);
                   view != nullptr && view->dtype == DType::kBool && view->data != nullptr) {
          const std::size_t count = view->count();
          holds = std::any_of(view->data, view->data + count, [](std::uint8_t byte) { return byte != 0; });
        } else {
          return {Code::kFile, "A jump's condition is neither true nor false.", kCopyAgain};
        }
        if (!holds && instruction.to <= index && ++jumps > most_jumps_) {
          return {Code::kLimit,
                  "Method " + name() + " jumped backwards more than " + std::to_string(most_jumps_) +
                      " times in one execution: it may go round for ever.",
                  "allow more (--max_jumps) if it has loops as long as that; else export it again"};
        }
        next = holds ? next : instruction.to;
        break;
      }
      case Action::kFree:
        break;
    }
    SLIPWAY_RETURN_IF_ERROR(done);
    if (recorder_ != nullptr) {
      record(instruction, index, start);
    }
  }
  return {};
}

}  // namespace slipway::lean
