#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <onnxruntime_cxx_api.h>
#include <onnxruntime_session_options_config_keys.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/platform.h"
#include "failures.h"
#include "graph.h"
#include "provider.h"
#include "slipway/engine.h"

namespace slipway {
namespace {

// A folder of our own for files that ONNX Runtime insists on writing; gone, with all that is in it, at the
// end.
class Scratch {
 public:
  // In TMPDIR, /tmp, /dev/shm or the current folder: the first that can be written to.
  Scratch() {
    for (const char* base : {static_cast<const char*>(std::getenv("TMPDIR")), "/tmp", "/dev/shm", "."}) {
      if (base == nullptr || *base == '\0') {
        continue;
      }
      std::string path = std::string(base) + "/pte_runner.XXXXXX";
      if (::mkdtemp(path.data()) != nullptr) {
        path_ = path;
        return;
      }
    }
  }
  ~Scratch() {
    empty();
    ::rmdir(path_.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Empty when no folder can be written to.
  const std::string& path() const { return path_; }
  // Removes the files that are in it so far.
  void empty() const {
    // Not <filesystem>: the oldest libstdc++ that devices have, GCC 8's, has it in a library of its own.
    DIR* folder = path_.empty() ? nullptr : ::opendir(path_.c_str());
    while (const dirent* entry = folder == nullptr ? nullptr : ::readdir(folder)) {
      ::unlink((path_ + "/" + entry->d_name).c_str());  // not "." and "..": they are folders
    }
    if (folder != nullptr) {
      ::closedir(folder);
    }
  }

 private:
  std::string path_;
};

using onnx::contained;

// With one thread: most sessions compute nothing. `ort`: of a model in ONNX Runtime's own format.
Ort::SessionOptions plain_options(bool ort) {
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1);
  options.AddConfigEntry(kOrtSessionOptionsConfigLoadModelFormat, ort ? "ORT" : "ONNX");
  return options;
}

Status no_folder() {
  return {Code::kOutput, "ONNX Runtime needs a folder to write to, and there is none.",
          "set TMPDIR to a folder that can be written to"};
}

class OnnxRuntimeEngine : public Engine {
 public:
  OnnxRuntimeEngine() : env_(ORT_LOGGING_LEVEL_ERROR, "pte_runner", onnx::keep_logged_error, nullptr) {}

  EngineInfo info() const override { return {"onnxruntime", SLIPWAY_ONNXRUNTIME_VERSION}; }
  Capabilities capabilities() const override;
  Status configure(const EngineOptions& options) override;
  std::vector<std::pair<std::string, std::string>> settings() const override;
  Result<unsigned> set_threads(unsigned count) override {
    threads_ = count;
    return count;
  }
  Result<ProgramInfo> describe(const std::string& model_path) override;
  Status examine(const std::string& model_path, std::vector<std::string>* missing) override;
  Status load(const LoadOptions& options) override {
    return contained(Code::kFile, [&] { return load_session(options); });
  }
  Status set_inputs(const std::vector<Tensor>& inputs) override {
    return contained(Code::kInput, [&] { return give_inputs(inputs); });
  }
  Status execute() override {
    ++executions_;
    return contained(Code::kExecution, [&] { return run_session(); });
  }
  Result<std::vector<Tensor>> outputs() override;

  unsigned least_warmup() const override { return 1; }
  Placement placement() const override { return placement_; }
  Result<std::vector<std::uint8_t>> profile() override {
    return std::vector<std::uint8_t>(profile_text_.begin(), profile_text_.end());
  }
  Result<std::vector<ProfileRow>> profile_rows(unsigned timed) override;

 private:
  bool xnnpack() const { return options_.provider != "cpu"; }
  unsigned ort_threads() const {
    return options_.ort_threads != 0 ? options_.ort_threads : xnnpack() ? 1 : threads_;
  }
  Ort::SessionOptions session_options(bool ort) const;
  std::unique_ptr<Ort::Session> make_session(const std::string& path, bool ort) const;
  Result<std::string> readable(const std::string& path, const Scratch& folder) const;
  Status load_session(const LoadOptions& options);
  Status give_inputs(const std::vector<Tensor>& inputs);
  Status run_session();
  Status end_profile();

  Ort::Env env_;
  EngineOptions options_;
  unsigned threads_ = 1;
  onnx::Graph graph_;
  std::vector<std::string> kept_;  // why the provider has nothing of the model
  onnx::NamedSizes fixed_;         // for the session
  bool profile_wanted_ = false;
  bool unfolded_ = false;
  std::optional<Scratch> profiles_;  // until the profile has been read
  std::string profile_text_;
  unsigned executions_ = 0;
  Placement placement_;
  std::unique_ptr<Ort::Session> session_;
  std::vector<Ort::Value> inputs_;
  std::vector<Ort::Value> outputs_;
};

Capabilities OnnxRuntimeEngine::capabilities() const {
  Capabilities capabilities;
  // The library names providers that it has to load first; the bundle has none of those.
  for (const std::string& provider : Ort::GetAvailableProviders()) {
    if (provider == onnx::kCpu || provider == onnx::kXnnpack) {
      capabilities.backends.push_back(provider);
    }
  }
  std::sort(capabilities.backends.begin(), capabilities.backends.end());
  capabilities.lists_operators = false;
  // A function of KleidiAI's that every build of XNNPACK with it has; by name, for it may not be there.
  capabilities.kleidiai = ::dlsym(RTLD_DEFAULT, "kai_run_lhs_quant_pack_qai8dxp_f32") != nullptr;
  return capabilities;
}

// The first session registers all operators. Debian's libonnxruntime and libonnx each hold ONNX's schemas,
// and the second to register them writes hundreds of lines to standard error: better here, unheard and with
// the smallest of models, than while the user's is loaded.
Status OnnxRuntimeEngine::configure(const EngineOptions& options) {
  options_ = options;
  static constexpr char kModel[] =
      "\x08\x08\x3a\x2f"                                     // IR version 8, a graph of
      "\x0a\x10\x0a\x01x\x12\x01y\x22\x08Identity\x12\x01g"  // y = Identity(x)
      "\x5a\x0b\x0a\x01x\x12\x06\x0a\x04\x08\x01\x12\x00"    // from the float x
      "\x62\x0b\x0a\x01y\x12\x06\x0a\x04\x08\x01\x12\x00"    // to the float y,
      "\x42\x02\x10\x0d";                                    // with operator set 13
  const int errors = ::dup(STDERR_FILENO);
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  std::fflush(stderr);
  ::dup2(nothing, STDERR_FILENO);
  const Status status = contained(Code::kExecution, [&]() -> Status {
    const Ort::Session session(env_, kModel, sizeof(kModel) - 1, plain_options(false));
    return {};
  });
  ::dup2(errors, STDERR_FILENO);
  ::close(errors);
  ::close(nothing);
  return status;
}

std::vector<std::pair<std::string, std::string>> OnnxRuntimeEngine::settings() const {
  return {{"provider", xnnpack() ? "xnnpack" : "cpu"},
          {"xnnpack_threads", std::to_string(xnnpack() ? threads_ : 0)},
          {"ort_threads", std::to_string(ort_threads())},
          {"ort_spinning", options_.ort_spinning ? "1" : "0"}};
}

Result<ProgramInfo> OnnxRuntimeEngine::describe(const std::string& model_path) {
  return contained(Code::kFile, [&]() -> Result<ProgramInfo> {
    const Scratch folder;
    SLIPWAY_TRY(const std::string path, readable(model_path, folder));
    SLIPWAY_TRY(const onnx::Graph graph, onnx::read_model(path));
    SLIPWAY_TRY(const MappedFile file, MappedFile::open(model_path));
    return onnx::program_info(graph, file.size());
  });
}

// What only ONNX Runtime can tell, without optimizing: whether it knows the operators, versions and types.
Status OnnxRuntimeEngine::examine(const std::string& model_path, std::vector<std::string>* missing) {
  const Status status = contained(Code::kFile, [&]() -> Status {
    Ort::SessionOptions options = plain_options(onnx::is_ort(model_path));
    options.SetGraphOptimizationLevel(ORT_DISABLE_ALL);
    const Ort::Session session(env_, model_path.c_str(), options);
    return {};
  });
  if (status.code() == Code::kMissingOperator) {
    *missing = status.names();
    return {};
  }
  return status;
}

// The provider's documentation recommends just this: its own pool as large as there are cores, ONNX Runtime's
// of one thread and without spinning, so that the two do not contend.
Ort::SessionOptions OnnxRuntimeEngine::session_options(bool ort) const {
  Ort::SessionOptions options = plain_options(ort);
  options.AddConfigEntry(kOrtSessionOptionsConfigAllowIntraOpSpinning, options_.ort_spinning ? "1" : "0");
  options.SetIntraOpNumThreads(static_cast<int>(kept_.empty() ? ort_threads() : threads_));
  if (xnnpack() && kept_.empty()) {
    options.AppendExecutionProvider("XNNPACK", {{"intra_op_num_threads", std::to_string(threads_)}});
  }
  for (const auto& [name, size] : fixed_) {
    Ort::ThrowOnError(Ort::GetApi().AddFreeDimensionOverrideByName(options, name.c_str(), size));
  }
  if (!profiles_->path().empty()) {
    options.EnableProfiling((profiles_->path() + "/profile").c_str());
  }
  return options;
}

// With sums of 8-bit products in 32 bits: on x86 processors without VNNI pairs of them stick at the ends of
// 16 bits otherwise. There QLinearConv and QLinearMatMul of int8 alone have no kernel for it, and need none;
// then what lies between DequantizeLinear and QuantizeLinear is computed in float32.
std::unique_ptr<Ort::Session> OnnxRuntimeEngine::make_session(const std::string& path, bool ort) const {
  Ort::SessionOptions options = session_options(ort);
  Ort::SessionOptions exact = options.Clone();
  exact.AddConfigEntry(kOrtSessionOptionsAvx2PrecisionMode, "1");
  try {
    return std::make_unique<Ort::Session>(env_, path.c_str(), exact);
  } catch (const Ort::Exception& error) {
    if (error.GetOrtErrorCode() != ORT_NOT_IMPLEMENTED) {
      throw;
    }
  }
  // A profile is named after the second in which its session began: the first one's might be read instead.
  profiles_->empty();
  options.AddConfigEntry(kOrtSessionOptionsDisableQuantQDQ, "1");
  return std::make_unique<Ort::Session>(env_, path.c_str(), options);
}

// The path of the model as .onnx: an .ort model, which only ONNX Runtime reads, is written back as one into
// the folder. It does not import the operator set in which the XNNPACK provider has convolutions and pools:
// a build that reads .onnx, as Debian's does, cannot give them to the provider either.
Result<std::string> OnnxRuntimeEngine::readable(const std::string& path, const Scratch& folder) const {
  if (!onnx::is_ort(path)) {
    return path;
  }
  if (folder.path().empty()) {
    return no_folder();
  }
  Ort::SessionOptions options = plain_options(true);
  options.SetGraphOptimizationLevel(ORT_DISABLE_ALL);
  options.AddConfigEntry(kOrtSessionOptionsConfigSaveModelFormat, "ONNX");
  std::string written = folder.path() + "/model.onnx";
  options.SetOptimizedModelFilePath(written.c_str());
  const Ort::Session session(env_, path.c_str(), options);
  return written;
}

Status OnnxRuntimeEngine::load_session(const LoadOptions& options) {
  if (!options.data_path.empty()) {
    return {Code::kUsage, "--data_path is for .ptd files.",
            "put the data files of an ONNX model beside it, under the names that it has for them"};
  }
  const Scratch model_folder;
  SLIPWAY_TRY(const std::string readable_path, readable(options.model_path, model_folder));
  SLIPWAY_TRY(graph_, onnx::read_model(readable_path));
  unfolded_ = xnnpack() && readable_path != options.model_path;
  const std::string& path = xnnpack() ? readable_path : options.model_path;
  const bool ort = path == options.model_path && readable_path != path;
  if (!ort) {
    fixed_ = onnx::fix_sizes(options.shapes, &graph_);
  }
  if (xnnpack() && !options_.trust_provider) {
    kept_ = onnx::kept_away(graph_);
  }
  profile_wanted_ = options.profile;
  profiles_.emplace();
  if (profiles_->path().empty() && profile_wanted_) {
    return no_folder();
  }
  try {
    session_ = make_session(path, ort);
  } catch (const Ort::Exception& error) {
    if (!xnnpack() || !kept_.empty()) {
      throw;
    }
    const Status refused = onnx::from_exception(error, Code::kMissingBackend);
    kept_ = {"the model was kept from the XNNPACK provider: it refuses the model: " + refused.message()};
    profiles_->empty();
    session_ = make_session(path, ort);  // throws if it was not the provider that refused
    if (options_.trust_provider) {
      return {Code::kMissingBackend, "The XNNPACK provider refuses the model. " + refused.message(),
              "--provider cpu, which runs it"};
    }
  }
  return {};
}

Status OnnxRuntimeEngine::give_inputs(const std::vector<Tensor>& inputs) {
  inputs_.clear();
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  for (const Tensor& input : inputs) {
    // const_cast: there is no read-only form of a value; inputs are only read.
    inputs_.push_back(Ort::Value::CreateTensor(memory, const_cast<std::uint8_t*>(input.bytes.data()),
                                               input.bytes.size(), input.shape.data(), input.shape.size(),
                                               onnx::to_element_type(input.dtype)));
  }
  return {};
}

Status OnnxRuntimeEngine::run_session() {
  std::vector<const char*> inputs;
  for (const std::string& name : graph_.inputs) {
    inputs.push_back(name.c_str());
  }
  std::vector<const char*> outputs;
  for (const std::string& name : graph_.outputs) {
    outputs.push_back(name.c_str());
  }
  outputs_ = session_->Run(Ort::RunOptions(), inputs.data(), inputs_.data(), inputs_.size(), outputs.data(),
                           outputs.size());
  // Without a wish for a profile the first execution, which is not timed, is the only one that is recorded.
  return profile_wanted_ ? Status() : end_profile();
}

Status OnnxRuntimeEngine::end_profile() {
  if (!profiles_ || profiles_->path().empty()) {
    return {};
  }
  Ort::AllocatorWithDefaultOptions allocator;
  profile_text_ = system_text(session_->EndProfilingAllocated(allocator).get());
  profiles_.reset();
  SLIPWAY_TRY(const auto events, onnx::read_profile(profile_text_));
  std::string shapes;
  for (const Ort::Value& input : inputs_) {
    shapes += (shapes.empty() ? "" : ",") + to_text(input.GetTensorTypeAndShapeInfo().GetShape());
  }
  placement_ = onnx::placement_of(events, {xnnpack(), kept_, kept_.empty() ? ort_threads() : threads_,
                                           usable_cores(), has_open_inputs(graph_), shapes, !fixed_.empty()});
  if (unfolded_) {
    placement_.hints.emplace_back(
        "the .ort model was written back as .onnx for XNNPACK: give the .onnx to load faster");
  }
  return {};
}

Result<std::vector<Tensor>> OnnxRuntimeEngine::outputs() {
  return contained(Code::kExecution, [&]() -> Result<std::vector<Tensor>> {
    SLIPWAY_RETURN_IF_ERROR(end_profile());
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Ort::Value& value = outputs_[i];
      const DType dtype = value.IsTensor()
                              ? onnx::to_dtype(value.GetTensorTypeAndShapeInfo().GetElementType())
                              : DType::kUnknown;
      if (dtype == DType::kUnknown) {
        return Status(Code::kExecution,
                      "Output " + graph_.outputs[i] + " is of a kind that has no file form.",
                      "export a model whose outputs are tensors of bools, integers or floats");
      }
      const auto type = value.GetTensorTypeAndShapeInfo();
      tensors.push_back({dtype, type.GetShape(),
                         bytes_at(value.GetTensorRawData(), type.GetElementCount() * size_of(dtype))});
    }
    return tensors;
  });
}

Result<std::vector<ProfileRow>> OnnxRuntimeEngine::profile_rows(unsigned timed) {
  SLIPWAY_TRY(const auto events, onnx::read_profile(profile_text_));
  return onnx::by_operator(events, timed, executions_);
}

}  // namespace

std::unique_ptr<Engine> make_engine(AbortHandler /*on_abort*/) {
  return std::make_unique<OnnxRuntimeEngine>();
}

}  // namespace slipway
