#include "check.h"
#include "runner/files/npy.h"
#include "runner/inputs.h"
#include "temporary_folder.h"

namespace {

using namespace slipway;

MethodInfo method_with(std::vector<ValueSpec> inputs) {
  MethodInfo method;
  method.name = "forward";
  method.inputs = std::move(inputs);
  return method;
}

ValueSpec tensor_spec(DType dtype, Shape shape, Dynamism dynamism = Dynamism::kStatic) {
  ValueSpec spec;
  spec.kind = "tensor";
  spec.dtype = dtype;
  spec.shape = std::move(shape);
  spec.dynamism = dynamism;
  return spec;
}

Status inputs_status(const Options& options, const MethodInfo& method) {
  std::string note;
  const Result<std::vector<Tensor>> inputs = prepare_inputs(options, method, &note);
  return inputs.ok() ? Status() : inputs.status();
}

TEST(dimensions_that_are_fixed_beside_free_ones) {
  ValueSpec spec = tensor_spec(DType::kFloat32, {1, 3, 8}, Dynamism::kUnbounded);
  CHECK(check_input(spec, 0, DType::kFloat32, {9, 9, 9}).ok());
  spec.ranges = {{0, SizeRange::kAny}, {3, 3}, {2, 8}};
  CHECK(check_input(spec, 0, DType::kFloat32, {900, 3, 2}).ok());
  CHECK_CONTAINS(check_input(spec, 0, DType::kFloat32, {1, 4, 8}).message(),
                 "Input 0: expected float32 ?x3x8, given float32 1x4x8.");
  CHECK(!check_input(spec, 0, DType::kFloat32, {1, 3, 1}).ok());
  CHECK(!check_input(spec, 0, DType::kFloat32, {1, 3, 9}).ok());
  CHECK(!check_input(spec, 0, DType::kFloat32, {1, 3}).ok());
}

TEST(a_failure_is_the_inputs_only_when_they_differ_from_the_bounds) {
  const MethodInfo method = method_with(
      {tensor_spec(DType::kFloat32, {2}), tensor_spec(DType::kFloat32, {8, 24}, Dynamism::kBounded)});
  const Status failure(Code::kExecution, "cannot multiply", "fix", {"aten::mm"});
  const std::vector<Tensor> whole{ones(DType::kFloat32, {2}, 2), ones(DType::kFloat32, {8, 24}, 192)};
  CHECK(blame_inputs(failure, method, whole).code() == Code::kExecution);
  std::vector<Tensor> narrow = whole;
  narrow[1] = ones(DType::kFloat32, {5, 8}, 40);
  const Status blamed = blame_inputs(failure, method, narrow);
  CHECK(blamed.code() == Code::kInput);
  CHECK_CONTAINS(blamed.message(),
                 "Input 1: declared float32 at most 8x24, given float32 5x8. cannot multiply");
  CHECK(blame_inputs({Code::kMemory, "none left"}, method, narrow).code() == Code::kMemory);
  CHECK(blame_inputs({}, method, narrow).ok());
}

TEST(inputs_of_other_kinds) {
  ValueSpec number;
  number.kind = "int";
  number.dtype = DType::kInt64;
  number.exported = {DType::kInt64, {}, {42, 0, 0, 0, 0, 0, 0, 0}};
  std::string note;
  const auto inputs = prepare_inputs({}, method_with({number}), &note);
  CHECK(inputs.ok() && inputs.value()[0].bytes[0] == 42);
  const TemporaryFolder folder;
  folder.write("same.npy", format_npy(number.exported));
  folder.write("other.npy", format_npy({DType::kInt64, {}, {43, 0, 0, 0, 0, 0, 0, 0}}));
  Options options;
  options.inputs = {folder.file("same.npy")};
  CHECK(inputs_status(options, method_with({number})).ok());
  options.inputs = {folder.file("other.npy")};
  CHECK(inputs_status(options, method_with({number})).code() == Code::kInput);
  CHECK_CONTAINS(inputs_status(options, method_with({number})).message(),
                 "expected the int [42], with which the program was exported, given [43]");
  ValueSpec text;
  text.kind = "String";
  CHECK_CONTAINS(inputs_status({}, method_with({text})).message(), "(String)");
}

}  // namespace
