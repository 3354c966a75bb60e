// The rules a program keeps beyond being a well-formed flatbuffer (the comments of program.fbs state them).
// The runtime checks only some of them: where others are broken, it reads or writes out of bounds.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "program_file.h"
#include "program_info.h"
#include "slipway/tensor.h"

namespace slipway {
namespace {

// The runtime's limit on a tensor's rank.
constexpr std::size_t kMostDimensions = 16;

// Parts of a flatbuffer may be referred to by several tables, so that a small file can hold a million lists
// of a million items. All lists and names together may have so many items, and more in a larger file.
constexpr std::uint64_t kItems = std::uint64_t{1} << 24;
constexpr std::uint64_t kItemsPerByte = 16;

template <typename Vector>
std::size_t length(const Vector* vector) {
  return vector == nullptr ? 0 : vector->size();
}

bool below(std::int64_t index, std::size_t limit) {
  return index >= 0 && static_cast<std::uint64_t>(index) < limit;
}

template <typename Vector>
bool all_below(const Vector* indices, std::size_t limit) {
  return indices == nullptr || std::all_of(indices->begin(), indices->end(),
                                           [limit](std::int64_t index) { return below(index, limit); });
}

// Whether elements can be read as what they are: the verifier sees to four bytes only.
template <typename Vector>
bool aligned(const Vector* vector) {
  return vector == nullptr ||
         reinterpret_cast<std::uintptr_t>(vector->Data()) % sizeof(typename Vector::return_type) == 0;
}

// What a message is about: "value 7".
struct Name {
  const char* kind;
  std::size_t index;
};

class Checker {
 public:
  Checker(const pte::Program& program, const ProgramLayout& layout)
      : program_(program),
        layout_(layout),
        items_left_(kItems +
                    std::min(layout.program_size, UINT64_MAX / (2 * kItemsPerByte)) * kItemsPerByte) {}

  std::string run() {
    segments();
    data_tables();
    if (!fault_.empty()) {
      return fault_;  // tensors are looked up there
    }
    require(length(program_.execution_plan()) != 0, "it has no method");
    for (std::size_t i = 0; i < length(program_.execution_plan()); ++i) {
      const pte::ExecutionPlan* method = item_of(program_.execution_plan(), i);
      if (method == nullptr || method->name() == nullptr) {
        fail("method ", i, " has no name");
      } else {
        where_ = "method " + method->name()->str() + ": ";
        plan(*method);
      }
    }
    return fault_;
  }

 private:
  // Keeps the first fault: later ones often follow from it.
  template <typename... Parts>
  void fail(const Parts&... parts) {
    if (fault_.empty()) {
      fault_ = where_;
      (append(parts), ...);
    }
  }
  void append(std::string_view text) { fault_ += text; }
  void append(std::size_t number) { fault_ += std::to_string(number); }
  void append(const Name& name) {
    append(name.kind);
    append(name.index);
  }

  // Whether a vector may be gone through, here and by everything that reads the program later.
  template <typename Vector>
  bool counts(const Vector* vector) {
    const std::uint64_t items = length(vector);
    if (items > items_left_) {
      items_left_ = 0;
      fail("it refers to its lists and names more often than a file of its size does");
      return false;
    }
    items_left_ -= items;
    return true;
  }

  // The same of one that must be there.
  template <typename Vector>
  bool present(const Vector* vector) {
    return vector != nullptr && counts(vector);
  }

  // The words are put together only where it does not hold: a program has thousands of values.
  template <typename... Parts>
  bool require(bool holds, const Parts&... parts) {
    if (!holds) {
      fail(parts...);
    }
    return holds;
  }

  void segments() {
    for (std::size_t i = 0; i < length(program_.segments()); ++i) {
      const pte::DataSegment* segment = item_of(program_.segments(), i);
      require(segment->offset() <= layout_.segment_size &&
                  segment->size() <= layout_.segment_size - segment->offset(),
              "segment ", i, " lies beyond the file's end");
    }
  }

  std::uint64_t segment_size(std::size_t index) const { return item_of(program_.segments(), index)->size(); }

  void subsegments(const pte::SubsegmentOffsets* table, const char* name) {
    if (table == nullptr || length(table->offsets()) == 0 || !counts(table->offsets())) {
      return;
    }
    const std::size_t index = table->segment_index();
    if (!require(aligned(table->offsets()), name, " is at an odd address") ||
        !require(index < length(program_.segments()), name, " names segment ", index,
                 ", which is not there")) {
      return;
    }
    for (const std::uint64_t offset : *table->offsets()) {
      require(offset <= segment_size(index), name, " reaches beyond its segment");
    }
  }

  void data_tables() {
    subsegments(program_.constant_segment(), "the table of constants");
    for (std::size_t i = 0; i < length(program_.mutable_data_segments()); ++i) {
      subsegments(item_of(program_.mutable_data_segments(), i), "a table of initial values");
    }
    for (std::size_t i = 0; i < length(program_.named_data()); ++i) {
      const pte::NamedData* item = item_of(program_.named_data(), i);
      require(present(item->key()) && item->segment_index() < length(program_.segments()), "named data ", i,
              " has no name or no segment");
    }
  }

  void plan(const pte::ExecutionPlan& plan) {
    const std::size_t values = length(plan.values());
    const bool complete = plan.values() != nullptr && plan.inputs() != nullptr && plan.outputs() != nullptr;
    if (!require(complete, "it has no values, inputs or outputs") ||
        !require(aligned(plan.non_const_buffer_sizes()),
                 "the sizes of planned memory are at an odd address") ||
        !counts(plan.inputs()) || !counts(plan.outputs()) || !counts(plan.name())) {
      return;
    }
    for (std::size_t i = 0; i < values; ++i) {
      value(plan, *item_of(plan.values(), i), i);
    }
    require(all_below(plan.inputs(), values), "an input is not among its values");
    require(all_below(plan.outputs(), values), "an output is not among its values");
    for (std::size_t i = 0; i < length(plan.operators()); ++i) {
      const pte::Operator* op = item_of(plan.operators(), i);
      require(present(op->name()) && counts(op->overload()) && op->name()->size() != 0, "operator ", i,
              " has no name");
    }
    for (std::size_t i = 0; i < length(plan.delegates()); ++i) {
      delegate(*item_of(plan.delegates(), i), i);
    }
    for (std::size_t i = 0; i < length(plan.non_const_buffer_sizes()); ++i) {
      require(item_of(plan.non_const_buffer_sizes(), i) >= 0, "a planned memory has a negative size");
    }
    require(length(plan.chains()) != 0, "it has no instructions");
    for (std::size_t i = 0; i < length(plan.chains()); ++i) {
      chain(plan, *item_of(plan.chains(), i));
    }
  }

  void delegate(const pte::BackendDelegate& delegate, std::size_t index) {
    const Name name = {"delegate ", index};
    require(present(delegate.id()) && delegate.id()->size() != 0, name, " has no backend");
    const pte::BackendDelegateDataReference* data = delegate.processed();
    if (!require(data != nullptr, name, " has no data")) {
      return;
    }
    const bool is_inline = data->location() == pte::DataLocation::INLINE;
    require(is_inline || data->location() == pte::DataLocation::SEGMENT, name, " has its data nowhere");
    const std::size_t limit =
        is_inline ? length(program_.backend_delegate_data()) : length(program_.segments());
    require(data->index() < limit, name, " names data that is not there");
    for (std::size_t i = 0; i < length(delegate.compile_specs()); ++i) {
      const pte::CompileSpec* spec = item_of(delegate.compile_specs(), i);
      require(spec->key() != nullptr && spec->value() != nullptr, name, " has an empty compile spec");
    }
  }

  void chain(const pte::ExecutionPlan& plan, const pte::Chain& chain) {
    const std::size_t values = length(plan.values());
    const std::size_t count = length(chain.instructions());
    for (std::size_t i = 0; i < count; ++i) {
      const pte::Instruction* instruction = item_of(chain.instructions(), i);
      bool good = false;
      if (const auto* kernel = instruction->instr_args_as_KernelCall()) {
        good = below(kernel->op_index(), length(plan.operators())) && present(kernel->args()) &&
               all_below(kernel->args(), values);
      } else if (const auto* call = instruction->instr_args_as_DelegateCall()) {
        good = below(call->delegate_index(), length(plan.delegates())) && present(call->args()) &&
               all_below(call->args(), values);
      } else if (const auto* move = instruction->instr_args_as_MoveCall()) {
        good = below(move->move_from(), values) && below(move->move_to(), values);
      } else if (const auto* jump = instruction->instr_args_as_JumpFalseCall()) {
        good = below(jump->cond_value_index(), values) && below(jump->destination_instruction(), count + 1);
      } else if (const auto* release = instruction->instr_args_as_FreeCall()) {
        good = below(release->value_index(), values);
      }
      require(good, "instruction ", i, " is unknown or names something that is not there");
    }
  }

  void value(const pte::ExecutionPlan& plan, const pte::EValue& value, std::size_t index) {
    const std::size_t values = length(plan.values());
    const Name name = {"value ", index};
    require(value.val_type() <= pte::KernelTypes::OptionalTensorList, name, " is of an unknown kind");
    if (value.val_type() != pte::KernelTypes::NONE) {
      require(value.val() != nullptr, name, " is empty");
    }
    if (const auto* tensor = value.val_as_Tensor()) {
      this->tensor(plan, *tensor, name);
    } else if (const auto* text = value.val_as_String()) {
      require(present(text->string_val()), name, " is an empty string");
    } else if (const auto* ints = value.val_as_IntList()) {
      require(present(ints->items()) && aligned(ints->items()) && all_below(ints->items(), values), name,
              " refers to a value not there");
    } else if (const auto* tensors = value.val_as_TensorList()) {
      require(present(tensors->items()) && all_tensors(plan, tensors->items(), false), name,
              " refers to a tensor not there");
    } else if (const auto* optional = value.val_as_OptionalTensorList()) {
      require(present(optional->items()) && all_tensors(plan, optional->items(), true), name,
              " refers to a tensor not there");
    } else if (const auto* doubles = value.val_as_DoubleList()) {
      require(present(doubles->items()) && aligned(doubles->items()), name, " has no items");
    } else if (const auto* bools = value.val_as_BoolList()) {
      require(present(bools->items()), name, " has no items");
    }
  }

  bool all_tensors(const pte::ExecutionPlan& plan, const flatbuffers::Vector<std::int32_t>* items,
                   bool optional) {
    for (const std::int32_t item : *items) {
      if (item == -1 && optional) {
        continue;
      }
      if (!below(item, length(plan.values()))) {
        return false;
      }
      const pte::KernelTypes type = item_of(plan.values(), item)->val_type();
      const bool none = type == pte::KernelTypes::NONE || type == pte::KernelTypes::Null;
      if (type != pte::KernelTypes::Tensor && !(optional && none)) {
        return false;
      }
    }
    return true;
  }

  void tensor(const pte::ExecutionPlan& plan, const pte::Tensor& tensor, const Name& name) {
    const std::size_t rank = length(tensor.sizes());
    if (!require(
            rank <= kMostDimensions && length(tensor.dim_order()) == rank && tensor.storage_offset() == 0,
            name, " is a tensor of an impossible layout")) {
      return;
    }
    std::uint32_t seen = 0;
    Shape shape;
    for (std::size_t i = 0; i < rank; ++i) {
      const unsigned place = item_of(tensor.dim_order(), i);
      seen |= place < rank ? 1U << place : 0U;
      shape.push_back(item_of(tensor.sizes(), i));
    }
    require(seen + 1 == 1U << rank, name, " is a tensor with an impossible order of dimensions");
    const std::size_t element = element_size(tensor.scalar_type());
    require(element != 0, name, " is a tensor of an unknown element type");
    require(tensor.shape_dynamism() >= pte::TensorShapeDynamism::STATIC &&
                tensor.shape_dynamism() <= pte::TensorShapeDynamism::DYNAMIC_UNBOUND,
            name, " is a tensor of an unknown dynamism");
    std::size_t count = 0;
    if (count_elements(shape, element, &count)) {
      memory(plan, tensor, static_cast<std::uint64_t>(count) * element, name);
    } else {
      fail(name, " is a tensor of the impossible shape ", to_text(shape));
    }
  }

  void memory(const pte::ExecutionPlan& plan, const pte::Tensor& tensor, std::uint64_t bytes,
              const Name& name) {
    const pte::AllocationDetails* allocation = tensor.allocation_info();
    if (allocation != nullptr) {
      const std::uint64_t offset =
          std::uint64_t{allocation->memory_offset_high()} << 32 | allocation->memory_offset_low();
      // Memory 0 is reserved: the planned ones count from 1.
      const bool known = allocation->memory_id() != 0 &&
                         below(allocation->memory_id(), length(plan.non_const_buffer_sizes()));
      const auto size =
          known ? static_cast<std::uint64_t>(plan.non_const_buffer_sizes()->Get(allocation->memory_id())) : 0;
      require(known && offset <= size && bytes <= size - offset, name, " lies beyond its planned memory");
    }
    const pte::ExtraTensorInfo* extra = tensor.extra_tensor_info();
    if (extra != nullptr && extra->location() == pte::TensorDataLocation::EXTERNAL) {
      require(present(extra->fully_qualified_name()), name, " is stored elsewhere and has no name");
      return;
    }
    if (tensor.data_buffer_idx() == 0) {
      return;
    }
    if (allocation != nullptr) {
      const std::uint64_t table = extra == nullptr ? 0 : extra->mutable_data_segments_idx();
      require(table < length(program_.mutable_data_segments()) &&
                  stored(item_of(program_.mutable_data_segments(), table), tensor.data_buffer_idx(), bytes),
              name, " has its initial value nowhere");
    } else if (length(program_.constant_buffer()) != 0) {
      const bool known = tensor.data_buffer_idx() < length(program_.constant_buffer());
      const auto* storage =
          known ? program_.constant_buffer()->Get(tensor.data_buffer_idx())->storage() : nullptr;
      require(known && length(storage) >= bytes, name, " is a constant that is not there");
    } else {
      require(stored(program_.constant_segment(), tensor.data_buffer_idx(), bytes), name,
              " is a constant that is not there");
    }
  }

  // Whether entry `index` of the table has at least `bytes` up to its segment's end.
  bool stored(const pte::SubsegmentOffsets* table, std::uint32_t index, std::uint64_t bytes) {
    if (table == nullptr || index >= length(table->offsets()) ||
        table->segment_index() >= length(program_.segments())) {
      return false;
    }
    const std::uint64_t offset = table->offsets()->Get(index);
    const std::uint64_t size = segment_size(table->segment_index());
    return offset <= size && bytes <= size - offset;
  }

  const pte::Program& program_;
  const ProgramLayout& layout_;
  std::uint64_t items_left_;
  std::string where_;
  std::string fault_;
};

}  // namespace

std::string find_fault(const pte::Program& program, const ProgramLayout& layout) {
  return Checker(program, layout).run();
}

}  // namespace slipway
