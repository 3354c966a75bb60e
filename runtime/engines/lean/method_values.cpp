// What goes into a method and comes out of it.
#include <cstring>
#include <string>
#include <vector>

#include "method.h"

namespace slipway::lean {

Status Method::set_input(std::size_t index, const Tensor& input) {
  Value& value =
      values_[static_cast<std::size_t>(plan_->inputs()->Get(static_cast<flatbuffers::uoffset_t>(index)))];
  if (auto* view = std::get_if<View>(&value)) {
    const Status resized = resize(view, input.shape);
    if (!resized.ok()) {
      return {Code::kInput, resized.message(), resized.fix()};
    }
    if (view->dtype != input.dtype || view->bytes() != input.bytes.size() || view->bytes() > view->capacity) {
      return {Code::kInput, "Input " + std::to_string(index) + " is not what the method takes.",
              "compare with pte_runner --describe"};
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
  // A program may have put something else where a number was.
  const bool flag = std::holds_alternative<bool>(value);
  const bool is_number =
      flag || std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value);
  if (is_number && input.bytes.size() != (flag ? 1U : sizeof(std::int64_t))) {
    return {Code::kInput, "Input " + std::to_string(index) + " is not what the method takes.",
            "compare with pte_runner --describe"};
  }
  if (std::holds_alternative<std::int64_t>(value)) {
    std::int64_t number = 0;
    std::memcpy(&number, input.bytes.data(), sizeof(number));
    value = number;
  } else if (std::holds_alternative<double>(value)) {
    double number = 0;
    std::memcpy(&number, input.bytes.data(), sizeof(number));
    value = number;
  } else if (flag) {
    value = input.bytes.front() != 0;
  }
  return {};
}

Result<Tensor> Method::output(std::size_t index) const {
  const Value& value =
      values_[static_cast<std::size_t>(plan_->outputs()->Get(static_cast<flatbuffers::uoffset_t>(index)))];
  Tensor tensor;
  if (const auto* view = std::get_if<View>(&value)) {
    if (view->dtype == DType::kUnknown || view->data == nullptr) {
      return Status(Code::kExecution, "Output " + std::to_string(index) + " has no form outside the runtime.",
                    "export the model with outputs of plain number types");
    }
    tensor.dtype = view->dtype;
    tensor.shape = view->shape();
    tensor.bytes.assign(view->data, view->data + view->bytes());
    if (!view->contiguous()) {
      const std::vector<std::uint8_t> order(view->order.begin(), view->order.begin() + view->rank);
      tensor.bytes = to_row_major(tensor.bytes, tensor.shape, order, size_of(tensor.dtype));
    }
    return tensor;
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
