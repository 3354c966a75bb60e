#include "runner/inputs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/platform.h"
#include "base/text.h"
#include "runner/files/npy.h"
#include "runner/report/report.h"

namespace slipway {
namespace {

constexpr char kRebuild[] =
    "this runner was linked for other programs: ./inv build --ops-from with this one too, or without "
    "--ops-from";

// How the specification reads in a message: "float32 2x16", "float32 at most 8x16", "float32 ?x16".
std::string expected(const ValueSpec& spec) {
  const std::string dtype = name_of(spec.dtype);
  if (spec.dynamism == Dynamism::kBounded) {
    return dtype + " at most " + to_text(spec.shape);
  }
  std::string text;
  for (const SizeRange& range : size_ranges(spec)) {
    text += text.empty() ? "" : "x";
    text += range.most == SizeRange::kAny ? "?" : std::to_string(range.most);
  }
  return dtype + " " + (text.empty() ? to_text(spec.shape) : text);
}

Status wrong_count(const MethodInfo& method, std::size_t given, const char* flag) {
  std::vector<std::string> wanted;
  std::transform(method.inputs.begin(), method.inputs.end(), std::back_inserter(wanted), expected);
  return {Code::kInput,
          "Method " + method.name + " takes " + std::to_string(method.inputs.size()) + " inputs (" +
              joined(wanted) + "), " + std::to_string(given) + " given by " + flag + ".",
          "give one for each input, in this order, apart by commas"};
}

// Of an int, a double or a bool, as they are kept.
std::string number_text(const Tensor& tensor) {
  if (tensor.dtype == DType::kFloat64 && tensor.bytes.size() == sizeof(double)) {
    double number = 0;
    std::memcpy(&number, tensor.bytes.data(), sizeof number);
    return std::to_string(number);
  }
  std::int64_t number = 0;
  std::memcpy(&number, tensor.bytes.data(), std::min(tensor.bytes.size(), sizeof number));
  return tensor.dtype == DType::kBool ? (number != 0 ? "true" : "false") : std::to_string(number);
}

// Whether what is given for an int, double or bool is what the program was exported with: the exporter has
// computed with it, so that another would be taken and not change the outputs.
Status check_number(const ValueSpec& spec, std::size_t index, const Tensor& given) {
  if (spec.kind == "tensor" || spec.exported.bytes == given.bytes) {
    return {};
  }
  return {
      Code::kInput,
      "Input " + std::to_string(index) + ": expected the " + spec.kind + " " + number_text(spec.exported) +
          ", with which the program was exported, given " + number_text(given) + ".",
      "give that number, or export the program for this one: an exporter computes with numbers beforehand"};
}

// Ones in the shape given or, without one, in the shape declared.
Result<Tensor> make_input(const ValueSpec& spec, std::size_t index, const Shape* given) {
  const Shape& shape = given != nullptr ? *given : spec.shape;
  SLIPWAY_RETURN_IF_ERROR(check_input(spec, index, spec.dtype, shape));
  if (spec.kind != "tensor") {
    return spec.exported;
  }
  std::size_t count = 0;
  if (!count_elements(shape, size_of(spec.dtype), &count)) {
    return Status(Code::kInput,
                  "Input " + std::to_string(index) + " cannot have the shape " + to_text(shape) + ".",
                  "give a shape that fits into memory");
  }
  SLIPWAY_RETURN_IF_ERROR(
      check_room(std::uint64_t{count} * size_of(spec.dtype), "input " + std::to_string(index)));
  return ones(spec.dtype, shape, count);
}

}  // namespace

Result<Tensor> read_input(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) {
    const Status& status = file.status();
    const Code code = status.code() == Code::kFile ? Code::kInput : status.code();
    return Status(code, status.message(), status.fix(), status.names());
  }
  return parse_npy(file.value().data(), file.value().size(), path);
}

Status check_input(const ValueSpec& spec, std::size_t index, DType dtype, const Shape& shape) {
  const std::string which = "Input " + std::to_string(index);
  if (spec.dtype == DType::kUnknown) {
    return {Code::kInput, which + " is of a kind this runner cannot pass (" + spec.kind + ").",
            "export the method with tensors, ints, floats or bools as inputs"};
  }
  if (dtype == spec.dtype && fits(spec, shape)) {
    return {};
  }
  if (spec.dtype == DType::kNone) {
    return {Code::kInput,
            which + ": expected None, with which the program was exported, given " + name_of(dtype) + " " +
                to_text(shape) + ".",
            "give None: numpy.save(file, numpy.ndarray((), 'V0'))"};
  }
  std::string fix = "give it the shape " + to_text(spec.shape) + ", or export the program for this one";
  if (dtype != spec.dtype) {
    fix = spec.dtype == DType::kBFloat16
              ? std::string("save its bits as two-byte void: array.view('V2')")
              : std::string("convert it: array.astype('") + name_of(spec.dtype) + "')";
  }
  return {Code::kInput,
          which + ": expected " + expected(spec) + ", given " + name_of(dtype) + " " + to_text(shape) + ".",
          fix};
}

Status blame_inputs(const Status& failure, const MethodInfo& method, const std::vector<Tensor>& inputs) {
  if (failure.code() != Code::kExecution && failure.code() != Code::kFile) {
    return failure;
  }
  for (std::size_t i = 0; i < inputs.size() && i < method.inputs.size(); ++i) {
    const ValueSpec& spec = method.inputs[i];
    if (spec.dynamism != Dynamism::kStatic && inputs[i].shape != spec.shape) {
      return {
          Code::kInput,
          "Method " + method.name + " does not compute with the inputs' sizes. Input " + std::to_string(i) +
              ": declared " + expected(spec) + ", given " + name_of(inputs[i].dtype) + " " +
              to_text(inputs[i].shape) + ". " + failure.message(),
          "give every size that was fixed in the export as it was then: the file says only how large each "
          "may be at most",
          failure.names()};
    }
  }
  return failure;
}

Result<std::vector<Tensor>> prepare_inputs(const Options& options, const MethodInfo& method,
                                           std::string* note) {
  std::vector<Tensor> tensors;
  const bool from_files = !options.inputs.empty();
  const bool from_shapes = !options.input_shapes.empty();
  if (from_files && options.inputs.size() != method.inputs.size()) {
    return wrong_count(method, options.inputs.size(), "--inputs");
  }
  if (from_shapes && options.input_shapes.size() != method.inputs.size()) {
    return wrong_count(method, options.input_shapes.size(), "--input_shapes");
  }
  for (std::size_t i = 0; i < method.inputs.size(); ++i) {
    const ValueSpec& spec = method.inputs[i];
    SLIPWAY_TRY(Tensor tensor, from_files
                                   ? read_input(options.inputs[i])
                                   : make_input(spec, i, from_shapes ? &options.input_shapes[i] : nullptr));
    if (from_files) {
      Status status = check_input(spec, i, tensor.dtype, tensor.shape);
      if (status.ok()) {
        status = check_number(spec, i, tensor);
      }
      if (status.ok() && from_shapes && tensor.shape != options.input_shapes[i]) {
        status = {Code::kInput,
                  "it has the shape " + to_text(tensor.shape) + ", and --input_shapes says " +
                      to_text(options.input_shapes[i]) + ".",
                  "give the files' own shapes, or drop one of --inputs and --input_shapes"};
      }
      if (!status.ok()) {
        return Status(status.code(), options.inputs[i] + ": " + status.message(), status.fix(),
                      {options.inputs[i]});
      }
    }
    tensors.push_back(std::move(tensor));
  }
  if (!from_files && !method.inputs.empty()) {
    *note = "Inputs are ones in the shapes " +
            std::string(from_shapes ? "given by --input_shapes" : "the method declares") + ":";
    for (const Tensor& tensor : tensors) {
      *note += std::string(" ") + name_of(tensor.dtype) + " " + to_text(tensor.shape);
    }
  }
  return tensors;
}

Result<MethodInfo> find_method(const Options& options, const std::string& wanted,
                               const ProgramInfo& program) {
  std::vector<std::string> names;
  for (const MethodInfo& method : program.methods) {
    if (method.name == wanted) {
      return method;
    }
    names.push_back(method.name);
  }
  return Status(Code::kUsage, options.model_path + " has no method '" + wanted + "'.",
                "give --method_name one of: " + joined(names), {wanted});
}

std::vector<std::string> also_loaded(const Options& options) {
  std::vector<std::string> names = options.also_load;
  for (const EarlierRun& earlier : options.run_first) {
    const bool known = earlier.method == options.method_name ||
                       std::find(names.begin(), names.end(), earlier.method) != names.end();
    if (!known) {
      names.push_back(earlier.method);
    }
  }
  return names;
}

Status check_planned(const Options& options, const ProgramInfo& program) {
  std::vector<std::string> names = also_loaded(options);
  names.push_back(options.method_name);
  std::uint64_t all = 0;
  for (const std::string& name : names) {
    SLIPWAY_TRY(const MethodInfo method, find_method(options, name, program));
    all += std::min(method.planned_bytes, UINT64_MAX - all);
  }
  return check_room(all, "what " + joined(names) + " has planned");
}

Status check_offers(const Options& options, const MethodInfo& method, const Capabilities& capabilities) {
  const std::vector<std::string> backends = missing(method.backends, capabilities.backends);
  if (!backends.empty()) {
    return {
        Code::kMissingBackend,
        joined(backends) + " is not registered: the linker dropped it, or this runner was built without it.",
        capabilities.selective ? kRebuild
                               : "build the bundle again, or export " + options.model_path +
                                     " for the backends this runner has: " +
                                     (capabilities.backends.empty() ? "none" : joined(capabilities.backends)),
        backends};
  }
  const std::vector<std::string> operators = missing_operators(method, capabilities, {});
  if (!operators.empty()) {
    return {Code::kMissingOperator,
            "Method " + method.name + " needs " + std::to_string(operators.size()) +
                (operators.size() == 1 ? " operator" : " operators") +
                " this runner does not have: " + joined(operators) + ".",
            capabilities.selective ? kRebuild
                                   : "build the bundle with a kernel library that holds them, or export the "
                                     "model so that a backend takes "
                                     "them over",
            operators};
  }
  if (!method.external_weights.empty() && options.data_path.empty()) {
    return {Code::kFile,
            "Method " + method.name + " has " + std::to_string(method.external_weights.size()) +
                " weights stored apart from the program: " + joined(method.external_weights) + ".",
            "give the .ptd file that was exported with it: --data_path FILE.ptd", method.external_weights};
  }
  return {};
}

}  // namespace slipway
