#include <dlfcn.h>
#include <executorch/devtools/etdump/data_sinks/buffer_data_sink.h>
#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/kernel/operator_registry.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/platform.h"
#include "etdump.h"
#include "platform_layer.h"
#include "program_file.h"
#include "program_info.h"
#include "slipway/engine.h"
#include "slipway/tensor.h"

namespace slipway {
namespace {

using executorch::aten::ScalarType;
using executorch::etdump::BufferDataSink;
using executorch::etdump::ETDumpGen;
using executorch::etdump::ETDumpResult;
using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Tag;

constexpr char kExportAgain[] =
    "copy the program again, or export it with the version of ExecuTorch that this "
    "runner has (pte_runner --version)";

// A failure of the runtime, with what it logged about it.
Status from_error(Error error, Code code, const std::string& what, std::string fix) {
  const std::string logged = take_logged_errors();
  if (error == Error::MemoryAllocationFailed || error == Error::DelegateMemoryAllocationFailed) {
    code = Code::kMemory;
    fix = out_of_memory().fix();
  } else if (error == Error::OperatorMissing) {
    // Registered by name, as was checked before, but not for these element types.
    code = Code::kMissingOperator;
    fix = "build the bundle with kernels for these element types, or delegate the operator";
  }
  if (code == Code::kExecution &&
      (error == Error::InvalidProgram || error == Error::InvalidExternalData ||
       error == Error::DelegateInvalidCompatibility || error == Error::NotFound)) {
    code = Code::kFile;
  }
  return {code, what + ": " + executorch::runtime::to_string(error) + (logged.empty() ? "." : ". " + logged),
          std::move(fix)};
}

bool is_row_major(const std::vector<std::uint8_t>& dim_order) {
  return std::is_sorted(dim_order.begin(), dim_order.end());
}

// A number's value in a tensor without dimensions; the runner has checked dtype and size.
template <typename T>
T number(const Tensor& tensor) {
  T value{};
  std::memcpy(&value, tensor.bytes.data(), sizeof(value));
  return value;
}

// How the method wants an input: a tensor in some memory order, or a number.
struct InputForm {
  Tag tag = Tag::None;
  std::vector<std::uint8_t> dim_order;
};

// Calls into the runtime, whose containers throw.
template <typename Call>
auto contained(Code code, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return Status(code, std::string("The engine failed: ") + error.what() + ".", kExportAgain);
  }
}

// Leaves out tensors of half precision, which upstream's ETDump lacks: no reader would take the file.
class ProfileWriter final : public ETDumpGen {
 public:
  executorch::runtime::Result<bool> log_evalue(const EValue& value,
                                               executorch::runtime::LoggedEValueType type) override {
    if (value.isTensor() && value.toTensor().scalar_type() == ScalarType::Half) {
      return false;
    }
    return ETDumpGen::log_evalue(value, type);
  }
};

class ExecuTorchEngine : public Engine {
 public:
  EngineInfo info() const override { return {"executorch", SLIPWAY_EXECUTORCH_VERSION}; }
  Capabilities capabilities() const override;
  Result<unsigned> set_threads(unsigned count) override { return reset_thread_pool(count); }
  Result<ProgramInfo> describe(const std::string& model_path) override {
    return read_program_info(model_path);
  }
  Status load(const LoadOptions& options) override {
    return contained(Code::kFile, [&] { return load_module(options); });
  }
  Status choose(const std::string& method) override {
    return contained(Code::kExecution, [&] { return prepare_method(method); });
  }
  Status set_inputs(const std::vector<Tensor>& inputs) override {
    return contained(Code::kInput, [&] { return give_inputs(inputs); });
  }
  Status execute() override {
    return contained(Code::kExecution, [&] { return execute_module(); });
  }
  Result<std::vector<Tensor>> outputs() override;
  Result<std::vector<std::uint8_t>> profile() override;
  Result<std::vector<std::uint8_t>> values() override {
    return sink_ ? bytes_at(values_.get(), sink_->get_used_bytes()) : std::vector<std::uint8_t>();
  }
  Result<std::vector<ProfileRow>> profile_rows(unsigned timed) override;

 private:
  Status load_module(const LoadOptions& options);
  Status prepare_method(const std::string& method);
  Status give_inputs(const std::vector<Tensor>& inputs);
  Status execute_module();
  Status keep_values();
  EValue input_value(const Tensor& input, const InputForm& form);
  Result<Tensor> output_tensor(const EValue& value) const;

  std::string method_;
  ETDumpGen* etdump_ = nullptr;  // owned by module_
  std::vector<std::uint8_t> profile_;
  // What instructions gave. The module's ETDump writes to it.
  std::unique_ptr<std::uint8_t, decltype(&std::free)> values_{nullptr, &std::free};
  std::optional<BufferDataSink> sink_;
  std::unique_ptr<Module> module_;
  std::vector<InputForm> inputs_;
  std::vector<TensorPtr> input_tensors_;
  std::vector<std::vector<std::uint8_t>> reordered_inputs_;
  std::vector<TensorPtr> output_tensors_;
  std::vector<std::vector<std::uint8_t>> output_buffers_;
  std::vector<EValue> outputs_;
};

Capabilities ExecuTorchEngine::capabilities() const {
  std::set<std::string> backends;
  for (std::size_t i = 0; i < executorch::runtime::get_num_registered_backends(); ++i) {
    const auto name = executorch::runtime::get_backend_name(i);
    if (name.ok()) {
      backends.insert(name.get());
    }
  }
  std::set<std::string> operators;
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) {
    operators.insert(kernel.name_);
  }
  // A function of KleidiAI's that every build of it has; looked up by name because it may not be there.
  const bool kleidiai = ::dlsym(RTLD_DEFAULT, "kai_run_lhs_quant_pack_qai8dxp_f32") != nullptr;
  return {{backends.begin(), backends.end()}, {operators.begin(), operators.end()}, kleidiai};
}

// Whether methods find each other's state: they were exported so if the exporter planned a second part of
// memory for each of them, which holds the buffers that executions change.
bool shares_state(const std::string& path, const std::vector<std::string>& methods) {
  Module module(path, Module::LoadMode::Mmap);
  return std::all_of(methods.begin(), methods.end(), [&](const std::string& name) {
    const auto meta = module.method_meta(name);
    return meta.ok() && meta->num_memory_planned_buffers() >= 2;
  });
}

Status ExecuTorchEngine::load_module(const LoadOptions& options) {
  auto etdump = options.profile ? std::make_unique<ProfileWriter>() : nullptr;
  etdump_ = etdump.get();
  if (options.values && etdump_ != nullptr) {
    SLIPWAY_RETURN_IF_ERROR(keep_values());
  }
  std::vector<std::string> data_files;
  if (!options.data_path.empty()) {
    SLIPWAY_TRY(const MappedFile weights, MappedFile::open(options.data_path));
    SLIPWAY_RETURN_IF_ERROR(check_data(weights.data(), weights.size(), options.data_path));
    data_files.push_back(options.data_path);
  }
  std::vector<std::string> methods = {options.method};
  methods.insert(methods.end(), options.also.begin(), options.also.end());
  const bool share = methods.size() > 1 && shares_state(options.model_path, methods);
  module_ = std::make_unique<Module>(options.model_path, data_files, Module::LoadMode::Mmap,
                                     std::move(etdump), nullptr, nullptr, share);
  Error error = module_->load();
  if (error != Error::Ok) {
    return from_error(error, Code::kFile, "Cannot load " + options.model_path, kExportAgain);
  }
  for (const std::string& name : methods) {
    error = module_->load_method(name);
    if (error != Error::Ok) {
      return from_error(error, Code::kExecution, "Cannot initialise method " + name, kExportAgain);
    }
  }
  return prepare_method(options.method);
}

// Makes a loaded method the one that inputs are for: remembers their memory orders, and gives memory to
// outputs for which the exporter planned none.
Status ExecuTorchEngine::prepare_method(const std::string& method) {
  method_ = method;
  inputs_.clear();
  const auto meta = module_->method_meta(method_);
  if (!meta.ok()) {
    return from_error(meta.error(), Code::kFile, "Cannot read method " + method_, kExportAgain);
  }
  for (std::size_t i = 0; i < meta->num_inputs(); ++i) {
    const auto tag = meta->input_tag(i);
    inputs_.push_back({tag.ok() ? tag.get() : Tag::None, {}});
    if (inputs_.back().tag == Tag::Tensor) {
      const auto tensor = meta->input_tensor_meta(i);
      if (!tensor.ok()) {
        return from_error(tensor.error(), Code::kFile, "Cannot read input " + std::to_string(i),
                          kExportAgain);
      }
      inputs_.back().dim_order.assign(tensor->dim_order().begin(), tensor->dim_order().end());
    }
  }
  for (std::size_t i = 0; i < meta->num_outputs(); ++i) {
    const auto tag = meta->output_tag(i);
    if (!tag.ok() || tag.get() != Tag::Tensor) {
      continue;
    }
    const auto tensor = meta->output_tensor_meta(i);
    if (!tensor.ok() || tensor->is_memory_planned()) {
      continue;
    }
    output_buffers_.emplace_back(tensor->nbytes());
    output_tensors_.push_back(
        make_tensor_ptr({tensor->sizes().begin(), tensor->sizes().end()}, output_buffers_.back().data(),
                        {tensor->dim_order().begin(), tensor->dim_order().end()}, {}, tensor->scalar_type()));
    const Error error = module_->set_output(method_, output_tensors_.back(), i);
    if (error != Error::Ok) {
      return from_error(error, Code::kExecution, "Cannot give memory to output " + std::to_string(i),
                        "export the program with memory planned for its outputs");
    }
  }
  return {};
}

// Upstream ends the process when the values need more than the buffer has. Untouched memory costs nothing.
Status ExecuTorchEngine::keep_values() {
  constexpr std::size_t kMost = sizeof(void*) > 4 ? std::size_t{4} << 30 : std::size_t{256} << 20;
  std::size_t size = kMost;
  while (values_ == nullptr && size > 1U << 20U) {
    values_.reset(static_cast<std::uint8_t*>(std::malloc(size)));
    size = values_ == nullptr ? size / 2 : size;
  }
  auto sink = BufferDataSink::create(values_.get(), size);
  if (values_ == nullptr || !sink.ok()) {
    return {Code::kMemory, "There is no memory for intermediate values.", "leave --dump_intermediate out"};
  }
  sink_.emplace(std::move(sink.get()));
  etdump_->set_data_sink(&*sink_);
  etdump_->set_event_tracer_debug_level(executorch::runtime::EventTracerDebugLogLevel::kIntermediateOutputs);
  return {};
}

EValue ExecuTorchEngine::input_value(const Tensor& input, const InputForm& form) {
  const void* data = input.bytes.data();
  switch (form.tag) {
    case Tag::Int:
      return EValue(number<std::int64_t>(input));
    case Tag::Double:
      return EValue(number<double>(input));
    case Tag::Bool:
      return EValue(number<std::uint8_t>(input) != 0);
    case Tag::None:
      return EValue();
    default:
      break;
  }
  const std::vector<std::uint8_t>& order = form.dim_order;
  if (!is_row_major(order)) {
    reordered_inputs_.push_back(to_memory_order(input.bytes, input.shape, order, size_of(input.dtype)));
    data = reordered_inputs_.back().data();
  }
  // const_cast: the runtime's tensors have no read-only form; inputs are only read.
  input_tensors_.push_back(make_tensor_ptr({input.shape.begin(), input.shape.end()}, const_cast<void*>(data),
                                           {order.begin(), order.end()}, {},
                                           static_cast<ScalarType>(to_stored(input.dtype))));
  return EValue(*input_tensors_.back());
}

Status ExecuTorchEngine::give_inputs(const std::vector<Tensor>& inputs) {
  input_tensors_.clear();
  reordered_inputs_.clear();
  std::vector<EValue> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(input_value(inputs[i], inputs_[i]));
  }
  const Error error = module_->set_inputs(method_, values);
  if (error != Error::Ok) {
    return from_error(error, Code::kInput, "Method " + method_ + " does not take these inputs",
                      "compare with pte_runner --describe");
  }
  return {};
}

Status ExecuTorchEngine::execute_module() {
  auto result = module_->execute(method_);
  if (!result.ok()) {
    return from_error(result.error(), Code::kExecution, "Executing method " + method_ + " failed",
                      "check the inputs' shapes and values against what the program was exported with");
  }
  outputs_ = std::move(result.get());
  return {};
}

Result<Tensor> ExecuTorchEngine::output_tensor(const EValue& value) const {
  if (value.isInt()) {
    return scalar<std::int64_t>(DType::kInt64, value.toInt());
  }
  if (value.isDouble()) {
    return scalar<double>(DType::kFloat64, value.toDouble());
  }
  if (value.isBool()) {
    return scalar<std::uint8_t>(DType::kBool, value.toBool() ? 1 : 0);
  }
  if (value.isNone()) {
    return Tensor{DType::kNone, {}, {}};
  }
  if (!value.isTensor()) {
    return Status(Code::kExecution, "Method " + method_ + " returns a value that has no file form.",
                  "export a method that returns tensors, ints, floats or bools");
  }
  const auto& tensor = value.toTensor();
  const DType dtype = to_dtype(static_cast<pte::ScalarType>(tensor.scalar_type()));
  if (dtype == DType::kUnknown) {
    return Status(Code::kExecution,
                  "Method " + method_ + " returns a tensor of type " +
                      name_of(static_cast<pte::ScalarType>(tensor.scalar_type())) +
                      ", which has no file form.",
                  "export a method that returns bools, integers, floats or complex numbers of two floats");
  }
  Tensor output{dtype,
                {tensor.sizes().begin(), tensor.sizes().end()},
                bytes_at(tensor.const_data_ptr(), tensor.nbytes())};
  const std::vector<std::uint8_t> order(tensor.dim_order().begin(), tensor.dim_order().end());
  if (!is_row_major(order)) {
    output.bytes = to_row_major(output.bytes, output.shape, order, size_of(dtype));
  }
  return output;
}

Result<std::vector<Tensor>> ExecuTorchEngine::outputs() {
  std::vector<Tensor> tensors;
  for (const EValue& value : outputs_) {
    SLIPWAY_TRY(tensors.emplace_back(), output_tensor(value));
  }
  return tensors;
}

Result<std::vector<std::uint8_t>> ExecuTorchEngine::profile() {
  // It ends when it is taken out: that is once.
  if (etdump_ == nullptr || !profile_.empty()) {
    return profile_;
  }
  const ETDumpResult result = etdump_->get_etdump_data();
  if (result.buf == nullptr || result.size == 0) {
    return Status(Code::kExecution, "The engine recorded no profile.", "run without --etdump_path");
  }
  profile_ = bytes_at(result.buf, result.size);
  std::free(result.buf);
  return profile_;
}

Result<std::vector<ProfileRow>> ExecuTorchEngine::profile_rows(unsigned timed) {
  SLIPWAY_TRY(const auto bytes, profile());
  SLIPWAY_TRY(const auto blocks, read_etdump(bytes.data(), bytes.size()));
  return rows_of(blocks, timed);
}

}  // namespace

std::unique_ptr<Engine> make_engine(AbortHandler on_abort) {
  install_platform_layer(on_abort);
  return std::make_unique<ExecuTorchEngine>();
}

}  // namespace slipway
