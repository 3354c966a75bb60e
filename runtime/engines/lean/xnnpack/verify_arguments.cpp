// What a call gives a graph, against what the graph takes and makes.
#include <algorithm>

#include "base/device_memory.h"
#include "file_format.h"
#include "lean/xnnpack/verify.h"
#include "slipway/tensor.h"

namespace slipway::lean {
namespace {

// The program's element type for a type of the graph's.
DType dtype_of_value(xnn_datatype type) {
  switch (type) {
    case xnn_datatype_fp32:
      return DType::kFloat32;
    case xnn_datatype_fp16:
      return DType::kFloat16;
    case xnn_datatype_bf16:
      return DType::kBFloat16;
    case xnn_datatype_qint8:
      return DType::kInt8;
    case xnn_datatype_quint8:
      return DType::kUInt8;
    case xnn_datatype_int32:
    case xnn_datatype_qint32:
      return DType::kInt32;
    default:
      return DType::kUnknown;
  }
}

// In the order in which they lie in memory. False for more dimensions than XNNPACK knows.
bool given_dims(const TensorView& view, Dims* dims) {
  dims->rank = view.rank;
  for (std::size_t i = 0; i < view.rank && i < dims->size.size(); ++i) {
    const std::int64_t size = view.sizes[view.order[i]];
    if (size < 0) {
      return false;
    }
    (*dims)[i] = static_cast<std::size_t>(size);
  }
  return view.rank <= dims->size.size();
}

// A single number is as good without dimensions as with any of 1.
bool is_single(const Dims& dims) {
  std::size_t count = 0;
  return count_all(dims, &count) && count == 1;
}

std::string text_of(const TensorView& view) {
  return std::string(name_of(view.dtype)) + " " + to_text(view.shape());
}

}  // namespace

bool GraphCheck::seen(const std::vector<TensorView*>& arguments) const {
  for (std::size_t argument = 0; argument < externals_.size(); ++argument) {
    const std::uint32_t value = externals_[argument];
    if (value == kNoValue || !facts_[value].input) {
      continue;
    }
    const TensorView* view = argument < arguments.size() ? arguments[argument] : nullptr;
    const Dims& known = shapes_[value];
    if (view == nullptr || view->rank != known.rank || view->dtype != dtype_of_value(facts_[value].type)) {
      return false;
    }
    for (std::size_t i = 0; i < known.rank; ++i) {
      if (static_cast<std::size_t>(view->sizes[view->order[i]]) != known[i]) {
        return false;
      }
    }
  }
  return true;
}

Status GraphCheck::take_input(const TensorView* view, std::uint32_t external_id) {
  const std::uint32_t value = externals_[external_id];
  const GraphFact& fact = facts_[value];
  const std::string name = "its input " + std::to_string(external_id);
  if (view == nullptr) {
    return fault("its call gives no tensor for value " + std::to_string(fact.id) + ", " + name);
  }
  if (view->dtype != dtype_of_value(fact.type)) {
    return fault(name + " is " + text_of(*view) + ", not of type " + name_of(fact.type) + ", as value " +
                 std::to_string(fact.id) + " is declared");
  }
  Dims dims;
  const bool known = given_dims(*view, &dims);
  if (known && dims.rank != fact.declared.rank && is_single(dims) && is_single(fact.declared)) {
    dims = fact.declared;
  }
  // What the program says is always so, the graph has to have said, too.
  const bool fits = known && dims.rank == fact.declared.rank &&
                    (view->dynamism != Dynamism::kStatic || dims == fact.declared);
  if (!fits) {
    return fault(name + " is " + text_of(*view) + ", and value " + std::to_string(fact.id) +
                 " is declared as " + shape_text(fact.declared));
  }
  if (view->bytes() > view->capacity) {
    return fault(name + " is " + text_of(*view) + ", and has " + std::to_string(view->capacity) + " bytes");
  }
  shapes_[value] = dims;
  return {};
}

Status GraphCheck::take_output(const TensorView* view, std::uint32_t external_id) const {
  const std::uint32_t value = externals_[external_id];
  const GraphFact& fact = facts_[value];
  const Dims& made = shapes_[value];
  const std::string name = "its output " + std::to_string(external_id);
  if (view == nullptr || view->constant) {
    return fault(view == nullptr
                     ? "its call gives no tensor for value " + std::to_string(fact.id) + ", " + name
                     : name + " is a constant of the program");
  }
  // XNNPACK writes indices as 32-bit numbers; the program may have a tensor of 64-bit ones for them.
  const bool indices = view->dtype == DType::kInt64 && dtype_of_value(fact.type) == DType::kInt32;
  if (!indices && view->dtype != dtype_of_value(fact.type)) {
    return fault(name + " is " + text_of(*view) + ", and value " + std::to_string(fact.id) +
                 " is declared as " + name_of(fact.type));
  }
  Dims dims;
  std::size_t count = 0;
  if (!given_dims(*view, &dims) || !count_all(made, &count) ||
      count > view->capacity / size_of(view->dtype)) {
    return fault(name + " does not fit the tensor " + text_of(*view) + " of the program: it is " +
                 shape_text(made));
  }
  std::size_t given = 0;
  const bool fits = dims.rank == made.rank ? view->dynamism != Dynamism::kStatic || dims == made
                                           : count_all(dims, &given) && given == count;
  if (!fits) {
    return fault(name + " does not fit the tensor " + text_of(*view) + " of the program: it is " +
                 shape_text(made));
  }
  return {};
}

Status GraphCheck::accept(const std::vector<TensorView*>& arguments) {
  if (accepted_ && seen(arguments)) {
    return {};
  }
  accepted_ = false;
  const auto view_of = [&](std::size_t argument) {
    return argument < arguments.size() ? arguments[argument] : nullptr;
  };
  bool dynamic = false;
  for (std::size_t argument = 0; argument < externals_.size(); ++argument) {
    if (externals_[argument] != kNoValue && facts_[externals_[argument]].input) {
      const TensorView* view = view_of(argument);
      SLIPWAY_RETURN_IF_ERROR(take_input(view, static_cast<std::uint32_t>(argument)));
      dynamic = dynamic || view->dynamism != Dynamism::kStatic;
    }
  }
  // A result's sizes follow from the inputs': an output that calls itself dynamic proves nothing.
  if (!loose_.empty() && !dynamic) {
    return fault(loose_);
  }
  const Fault wrong = follow();
  if (!wrong.empty()) {
    return {Code::kExecution, what_ + ": " + wrong + ".",
            "give inputs of shapes that the model takes, or export it with these dimensions dynamic"};
  }
  for (std::size_t argument = 0; argument < externals_.size(); ++argument) {
    if (externals_[argument] != kNoValue && facts_[externals_[argument]].output) {
      SLIPWAY_RETURN_IF_ERROR(take_output(view_of(argument), static_cast<std::uint32_t>(argument)));
    }
  }
  // XNNPACK keeps the memory that it had for larger shapes.
  const Status room = peak_ <= had_ ? Status() : check_room(peak_, what_);
  had_ = room.ok() ? std::max(had_, peak_) : had_;
  accepted_ = room.ok();
  return room;
}

}  // namespace slipway::lean
