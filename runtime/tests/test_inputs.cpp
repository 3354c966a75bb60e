#include "check.h"

#include "runner/files/npy.h"
#include "runner/inputs.h"
#include "runner/report/report.h"
#include "slipway/tensor.h"
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
                 "expected the int 42, with which the program was exported, given 43");
  ValueSpec text;
  text.kind = "String";
  CHECK_CONTAINS(inputs_status({}, method_with({text})).message(), "(String)");
}

std::vector<std::uint8_t> file_of(const std::string& header, std::size_t body, int major = 1) {
  std::vector<std::uint8_t> file{0x93, 'N', 'U', 'M', 'P', 'Y', static_cast<std::uint8_t>(major), 0};
  file.push_back(static_cast<std::uint8_t>(header.size()));
  file.push_back(0);
  if (major > 1) {
    file.push_back(0);
    file.push_back(0);
  }
  file.insert(file.end(), header.begin(), header.end());
  file.resize(file.size() + body, 7);
  return file;
}

Result<Tensor> parse(const std::vector<std::uint8_t>& file) {
  return parse_npy(file.data(), file.size(), "a.npy");
}

void npy_refused(const std::vector<std::uint8_t>& file, const std::string& why) {
  const Result<Tensor> tensor = parse(file);
  CHECK(!tensor.ok());
  if (!tensor.ok()) {
    CHECK(tensor.status().code() == Code::kInput);
    CHECK_CONTAINS(tensor.status().message(), why);
    CHECK(!tensor.status().fix().empty());
  }
}

TEST(npy_round_trip_of_every_type) {
  for (const DType dtype :
       {DType::kBool, DType::kUInt8, DType::kInt8, DType::kUInt16, DType::kInt16, DType::kUInt32,
        DType::kInt32, DType::kUInt64, DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32,
        DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0, 4}}) {
      std::size_t count = 0;
      CHECK(count_elements(shape, size_of(dtype), &count));
      const Tensor tensor = ones(dtype, shape, count);
      const Result<Tensor> back = parse(format_npy(tensor));
      CHECK(back.ok() && back.value().dtype == dtype && back.value().shape == shape &&
            back.value().bytes == tensor.bytes);
    }
  }
}

TEST(npy_reads_later_versions_and_loose_headers) {
  CHECK(parse(file_of("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n", 4, 2)).ok());
  CHECK(parse(file_of("{\"shape\":(2,),\"descr\":\"<i2\",\"fortran_order\":False}", 4, 3)).ok());
  // One dimension is the same in both orders.
  CHECK(parse(file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (4,), }", 4)).ok());
}

TEST(npy_refuses) {
  npy_refused({}, "is not a .npy file");
  npy_refused(std::vector<std::uint8_t>(200, 'x'), "is not a .npy file");
  npy_refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8, 9), "version 9");
  npy_refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 7), "truncated");
  npy_refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 9), "too long");
  npy_refused(file_of("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8), "big-endian");
  npy_refused(file_of("{'descr': '<c4', 'fortran_order': False, 'shape': (1,), }", 4), "'<c4'");
  npy_refused(file_of("{'descr': '<c16', 'fortran_order': False, 'shape': (1,), }", 8), "truncated");
  npy_refused(file_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8), "'|O'");
  npy_refused(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }", 8), "Fortran");
  npy_refused(file_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4),
              "cannot be read");
  npy_refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 8), "cannot be read");
  npy_refused(file_of("{'descr': '<f4', 'fortran_order': False}", 8), "cannot be read");
  npy_refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 999999999999), }", 8),
              "impossible");
}

TEST(npy_cut_anywhere_is_refused) {
  const std::vector<std::uint8_t> file = format_npy(ones(DType::kFloat32, {2, 3}, 6));
  for (std::size_t size = 0; size < file.size(); ++size) {
    // A copy of that very size, so that a sanitizer sees a read beyond it.
    const std::vector<std::uint8_t> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(!parse(cut).ok());
  }
}

TEST(halves_as_numbers) {
  CHECK_EQUAL(float16_value(0xBC00), -1.0F);
  CHECK_EQUAL(float16_value(0x0001), std::ldexp(1.0F, -24));
  CHECK(std::isinf(float16_value(0x7C00)) && std::signbit(float16_value(0x8000)));
  CHECK_EQUAL(bfloat16_value(0xC040), -3.0F);
}

}  // namespace
