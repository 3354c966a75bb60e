#include <cstring>

#include "handles.h"

namespace slipway {
namespace {

void put_shape(const Shape& shape, std::uint32_t* rank, std::int64_t* sizes) {
  *rank = static_cast<std::uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), sizes);
}

slipway_error* describe_value(const std::vector<ValueSpec>& values, std::size_t index, slipway_spec* spec) {
  if (spec == nullptr || index >= values.size()) {
    return usage_error(
        "The index is not one of the method's inputs or outputs, or the address for the result is NULL.",
        "compare with the method's counts");
  }
  const ValueSpec& value = values[index];
  *spec = {};
  const bool number = value.kind == "int" || value.kind == "double" || value.kind == "bool";
  spec->kind = value.kind == "tensor" ? SLIPWAY_TENSOR : number ? SLIPWAY_NUMBER : SLIPWAY_OTHER;
  spec->dtype = to_public(value.dtype);
  spec->dynamism = static_cast<std::int32_t>(value.dynamism);
  put_shape(value.shape, &spec->rank, spec->sizes);
  return nullptr;
}

Status wrong_input(std::size_t index, const std::string& what) {
  return {Code::kInput, "Input " + std::to_string(index) + " " + what,
          "compare with slipway_method_input_spec"};
}

std::string described(DType dtype, const Shape& shape) {
  return dtype == DType::kNone ? "None" : std::string(name_of(dtype)) + " " + to_text(shape);
}

Status set_input(slipway_method* method, std::size_t index, const slipway_tensor& tensor) {
  slipway_method::Input& input = method->inputs[index];
  const bool same_shape = input.given && input.tensor.rank == tensor.rank &&
                          input.tensor.dtype == tensor.dtype && tensor.rank <= SLIPWAY_MAX_DIMS &&
                          std::equal(tensor.sizes, tensor.sizes + tensor.rank, input.tensor.sizes);
  std::size_t size = input.size;
  if (!same_shape) {
    const DType dtype = to_dtype(tensor.dtype);
    if (dtype == DType::kUnknown || tensor.rank > SLIPWAY_MAX_DIMS) {
      return wrong_input(index, "has no known type, or more than 16 dimensions.");
    }
    const ValueSpec& declared = method->info.inputs[index];
    const Shape shape(tensor.sizes, tensor.sizes + tensor.rank);
    std::size_t count = 0;
    if (dtype != declared.dtype || !fits(declared, shape) || !count_elements(shape, size_of(dtype), &count)) {
      return wrong_input(index, "is " + described(dtype, shape) + "; the method takes " +
                                    described(declared.dtype, declared.shape) +
                                    (declared.dynamism == Dynamism::kStatic ? "." : " or less."));
    }
    size = count * size_of(dtype);
    method->settled = false;
  }
  if (tensor.data == nullptr && size != 0) {
    return wrong_input(index, "has no memory.");
  }
  input.tensor = tensor;
  input.size = size;
  input.given = true;
  return {};
}

Status run(slipway_method* method) {
  method->ran = false;
  for (std::size_t i = 0; i < method->inputs.size(); ++i) {
    slipway_method::Input& input = method->inputs[i];
    if (!input.given) {
      return wrong_input(i, "was not set.");
    }
    const slipway_tensor& tensor = input.tensor;
    input.copied = false;
    SLIPWAY_RETURN_IF_ERROR(method->method->give_input(
        i,
        {to_dtype(tensor.dtype), tensor.sizes, tensor.rank, static_cast<const std::uint8_t*>(tensor.data),
         input.size, tensor.readable > SIZE_MAX ? SIZE_MAX : static_cast<std::size_t>(tensor.readable)},
        &input.copied));
  }
  Status done = method->method->execute();
  method->ran = done.ok();
  return done;
}

Status execute(slipway_method* method) {
  if (method->settled && method->fixed_shapes) {
    return run(method);
  }
  const std::shared_lock<std::shared_mutex> reading(kernel_tables());
  Status done = run(method);
  method->settled = done.ok();
  return done;
}

Status output(slipway_method* method, std::size_t index, slipway_tensor* tensor) {
  if (const lean::TensorView* view = method->method->output_in_place(index)) {
    tensor->data = view->data;
    tensor->readable = 0;
    tensor->dtype = to_public(view->dtype);
    tensor->rank = view->rank;
    std::copy(view->sizes.begin(), view->sizes.begin() + view->rank, tensor->sizes);
    return {};
  }
  Tensor& kept = method->converted[index];
  SLIPWAY_TRY(kept, method->method->output(index));
  tensor->data = kept.bytes.data();
  tensor->readable = 0;
  tensor->dtype = to_public(kept.dtype);
  put_shape(kept.shape, &tensor->rank, tensor->sizes);
  return {};
}

}  // namespace
}  // namespace slipway

slipway_method::slipway_method(slipway::lean::Method* loaded, slipway::MethodInfo declared)
    : method(loaded),
      info(std::move(declared)),
      inputs(info.inputs.size()),
      converted(info.outputs.size()),
      fixed_shapes(loaded->fixed_shapes()) {}

using namespace slipway;

extern "C" {

const char* slipway_method_name(const slipway_method* method) {
  return method == nullptr ? "" : method->info.name.c_str();
}

size_t slipway_method_input_count(const slipway_method* method) {
  return method == nullptr ? 0 : method->inputs.size();
}

size_t slipway_method_output_count(const slipway_method* method) {
  return method == nullptr ? 0 : method->converted.size();
}

slipway_error* slipway_method_input_spec(const slipway_method* method, size_t index, slipway_spec* spec) {
  return method == nullptr ? usage_error("The method is NULL.", "do not give NULL")
                           : describe_value(method->info.inputs, index, spec);
}

slipway_error* slipway_method_output_spec(const slipway_method* method, size_t index, slipway_spec* spec) {
  return method == nullptr ? usage_error("The method is NULL.", "do not give NULL")
                           : describe_value(method->info.outputs, index, spec);
}

slipway_error* slipway_method_set_input(slipway_method* method, size_t index, const slipway_tensor* input) {
  if (method == nullptr || input == nullptr || index >= method->inputs.size()) {
    return usage_error("The index is not one of the method's inputs, or the method or the tensor is NULL.",
                       "compare with slipway_method_input_count");
  }
  return guarded([&] { return set_input(method, index, *input); });
}

int slipway_method_input_copied(const slipway_method* method, size_t index) {
  return method != nullptr && index < method->inputs.size() && method->inputs[index].copied ? 1 : 0;
}

slipway_error* slipway_method_execute(slipway_method* method) {
  return guarded("slipway_method_execute needs a method.", {method}, [&] { return execute(method); });
}

slipway_error* slipway_method_forward(slipway_method* method, const slipway_tensor* inputs, size_t count) {
  if (method == nullptr || (inputs == nullptr && count != 0)) {
    return usage_error("The method or the inputs are NULL.", "give neither as NULL");
  }
  return guarded([&] {
    if (count != method->inputs.size()) {
      return Status(Code::kInput,
                    "Method " + method->info.name + " takes " + std::to_string(method->inputs.size()) +
                        " inputs, " + std::to_string(count) + " given.",
                    "give one for each input");
    }
    for (std::size_t i = 0; i < count; ++i) {
      SLIPWAY_RETURN_IF_ERROR(set_input(method, i, inputs[i]));
    }
    return execute(method);
  });
}

slipway_error* slipway_method_output(slipway_method* method, size_t index, slipway_tensor* output) {
  if (method == nullptr || output == nullptr || index >= method->converted.size() || !method->ran) {
    return usage_error("The index is not one of the method's outputs, or the method has not run.",
                       "execute it first, and compare with slipway_method_output_count");
  }
  return guarded([&] { return slipway::output(method, index, output); });
}

}  // extern "C"
