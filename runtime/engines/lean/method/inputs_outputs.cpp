// What goes into a method and comes out of it.
#include <cstring>
#include <string>
#include <vector>

#include "device_memory.h"
#include "lean/method/method.h"

namespace slipway::lean {
namespace {

// Whether a tensor of that shape may be given where `view` is: of its rank, of its sizes where they are
// fixed, within every dimension's own bound where they are not. That its memory would hold it is not enough.
bool takes(const TensorView& view, const Tensor& input) {
  bool good = view.dtype == input.dtype && input.shape.size() == view.rank;
  for (std::size_t i = 0; good && i < view.rank; ++i) {
    const std::int64_t size = input.shape[i];
    good = view.dynamism == Dynamism::kStatic
               ? size == view.bounds[i]
               : size >= 0 && (view.dynamism == Dynamism::kUnbounded || size <= view.bounds[i]);
  }
  return good;
}

// Puts the number back that the program was exported with, where that is what is given: the exporter has
// computed with it, so that another would change nothing. False when it is another one.
bool take_number(const pte::EValue& stored, const Tensor& input, EValue* value) {
  const auto same = [&input](auto number) {
    return input.bytes.size() == sizeof(number) &&
           std::memcmp(&number, input.bytes.data(), sizeof(number)) == 0;
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
  return false;
}

}  // namespace

Status Method::set_input(std::size_t index, const Tensor& input) {
  const std::int32_t value_index = plan_->inputs()->Get(static_cast<flatbuffers::uoffset_t>(index));
  const Status wrong = {Code::kInput, "Input " + std::to_string(index) + " is not what the method takes.",
                        "compare with pte_runner --describe"};
  EValue& value = values_[static_cast<std::size_t>(value_index)];
  const pte::EValue& stored = *plan_->values()->Get(static_cast<flatbuffers::uoffset_t>(value_index));
  if (stored.val_type() != pte::KernelTypes::Tensor) {
    return take_number(stored, input, &value) ? Status() : wrong;
  }
  auto* view = std::get_if<TensorView>(&value);
  if (view == nullptr || !takes(*view, input)) {
    return wrong;
  }
  const Status resized = resize(view, input.shape);
  if (!resized.ok()) {
    return {Code::kInput, resized.message(), resized.fix()};
  }
  if (view->bytes() != input.bytes.size() || view->bytes() > view->capacity) {
    return wrong;
  }
  const std::vector<std::uint8_t> order(view->order.begin(), view->order.begin() + view->rank);
  if (view->bytes() == 0) {
    return {};
  }
  if (view->contiguous()) {
    std::memcpy(view->data, input.bytes.data(), input.bytes.size());
  } else {
    const auto reordered = to_memory_order(input.bytes, input.shape, order, size_of(input.dtype));
    std::memcpy(view->data, reordered.data(), reordered.size());
  }
  return {};
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
  } else {
    return Status(Code::kExecution, "Output " + std::to_string(index) + " has no form outside the runtime.",
                  "export the model with tensors and numbers as outputs");
  }
  return tensor;
}

}  // namespace slipway::lean
