// What goes into a method and comes out of it.
#include <xnnpack.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/device_memory.h"
#include "lean/method/method.h"

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
  const std::int32_t value_index = plan_->inputs()->Get(static_cast<flatbuffers::uoffset_t>(index));
  const auto wrong = [index] {
    return Status(Code::kInput, "Input " + std::to_string(index) + " is not what the method takes.",
                  "compare with pte_runner --describe");
  };
  EValue& value = values_[static_cast<std::size_t>(value_index)];
  const pte::EValue& stored = *plan_->values()->Get(static_cast<flatbuffers::uoffset_t>(value_index));
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
  const auto value =
      static_cast<std::size_t>(plan_->outputs()->Get(static_cast<flatbuffers::uoffset_t>(index)));
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
  const EValue& value =
      values_[static_cast<std::size_t>(plan_->outputs()->Get(static_cast<flatbuffers::uoffset_t>(index)))];
  Tensor tensor;
  if (const auto* view = std::get_if<TensorView>(&value)) {
    if (view->dtype == DType::kUnknown || view->data == nullptr) {
      return Status(Code::kExecution, "Output " + std::to_string(index) + " has no form outside the runtime.",
                    "export the model with outputs of plain number types");
    }
    // A damaged file may name a large tensor as an output many times.
    SLIPWAY_RETURN_IF_ERROR(check_room(view->bytes(), "output " + std::to_string(index)));
    return tensor_of(*view);
  }
  const auto scalar = [&tensor](DType dtype, auto number) {
    tensor.dtype = dtype;
    tensor.bytes.resize(sizeof(number));
    std::memcpy(tensor.bytes.data(), &number, sizeof(number));
  };
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    scalar(DType::kInt64, *integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    scalar(DType::kFloat64, *real);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    scalar(DType::kBool, static_cast<std::uint8_t>(*flag ? 1 : 0));
  } else if (std::holds_alternative<std::monostate>(value)) {
    tensor.dtype = DType::kNone;
  } else {
    return Status(Code::kExecution, "Output " + std::to_string(index) + " has no form outside the runtime.",
                  "export the model with tensors and numbers as outputs");
  }
  return tensor;
}

}  // namespace slipway::lean
