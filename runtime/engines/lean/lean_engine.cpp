#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "etdump.h"
#include "lean/kernels/kernel.h"
#include "lean/loaded_program.h"
#include "lean/method/method.h"
#include "lean/xnnpack/kernel_choices.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/xnn_delegate.h"
#include "program_info.h"
#include "slipway/engine.h"

namespace slipway {
namespace {

// The containers of the standard library throw; nothing leaves the engine.
template <typename Call>
auto contained(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return Status(Code::kExecution, std::string("The engine failed: ") + error.what() + ".",
                  "export the model again, and report it if that does not help");
  }
}

// Not used without XNNPACK. Nothing is known of a damaged graph, or one with weights in another file.
[[maybe_unused]] void add_kernel_types(const std::string& model_path, ProgramInfo* info) {
  const Result<lean::DataStore> store = lean::DataStore::open(model_path, "");
  for (std::size_t i = 0; store.ok() && i < info->methods.size(); ++i) {
    const pte::ExecutionPlan& plan = *item_of(store.value().program().execution_plan(), i);
    const Result<std::vector<std::string>> types = lean::kernel_types(plan, store.value());
    if (types.ok()) {
      info->methods[i].kernel_types = types.value();
    }
  }
}

// Kernels here have no other types than ours: each operator that is called with such is one that is missing.
void add_other_types(MethodInfo* method) {
  std::copy_if(method->other_types.begin(), method->other_types.end(), std::back_inserter(method->operators),
               lean::has_kernel);
  std::sort(method->operators.begin(), method->operators.end());
}

class LeanEngine : public Engine {
 public:
  EngineInfo info() const override { return {"lean", SLIPWAY_VERSION}; }

  Capabilities capabilities() const override {
    Capabilities offered;
    if (lean::kHasXnnpack) {
      offered.backends.emplace_back(lean::kXnnpackBackend);
    }
    offered.operators = lean::kernel_names();
    offered.kleidiai = lean::kHasXnnpack && SLIPWAY_KLEIDIAI != 0;
    offered.selective = lean::kSelective;
    offered.kernel_types = lean::linked_kernel_types();
    return offered;
  }

  Status configure(const EngineOptions& options) override {
    SLIPWAY_TRY(const std::vector<std::string> unused, lean::known_features(options.unused_features));
    if (options.kleidiai == "on" && !capabilities().kleidiai) {
      return {
          Code::kUsage, "This runner was built without KleidiAI.",
          "leave --kleidiai on to bundles for 64-bit Arm; without it, the fastest kernels here are chosen"};
    }
    context_.limit({unused, options.kleidiai != "off"});
    max_jumps_ = options.max_jumps;
    cache_path_ = options.weights_cache;
    return Engine::configure(options);
  }

  std::vector<std::pair<std::string, std::string>> settings() const override {
    std::vector<std::pair<std::string, std::string>> found;
    const bool built = capabilities().kleidiai;
    found.emplace_back("kleidiai", !built ? "none" : context_.limits().kleidiai ? "on" : "off");
    const lean::UnusedFeatures& features = context_.unused();
    if (!features.unused.empty()) {
      found.emplace_back("cpu_features_unused", joined(features.unused, ","));
    }
    if (!features.absent.empty()) {
      found.emplace_back("cpu_features_absent", joined(features.absent, ","));
    }
    return found;
  }

  Result<unsigned> set_threads(unsigned count) override {
    method_ = nullptr;
    program_.end_methods();  // their graphs use the threads that are about to end
    return contained([&] {
      // Here, so that no program's loading takes longer for it; load() tells what is wrong.
      static_cast<void>(context_.start());
      return context_.set_threads(count);
    });
  }

  Result<ProgramInfo> describe(const std::string& model_path) override {
    return contained([&] {
      Result<ProgramInfo> info = read_program_info(model_path);
      if (info.ok()) {
        std::for_each(info.value().methods.begin(), info.value().methods.end(),
                      [](MethodInfo& method) { add_other_types(&method); });
      }
      if constexpr (lean::kHasXnnpack) {  // else the linker would keep its reader of graphs
        if (info.ok()) {
          add_kernel_types(model_path, &info.value());
        }
      }
      return info;
    });
  }

  Status load(const LoadOptions& options) override {
    return contained([&] { return load_method(options); });
  }

  Status choose(const std::string& method) override {
    lean::Method* found = program_.find(method);
    if (found == nullptr) {
      return {Code::kUsage, "Method " + method + " was not loaded.", "--also_load " + method};
    }
    method_ = found;
    return {};
  }

  Status set_inputs(const std::vector<Tensor>& inputs) override {
    return contained([&] {
      if (inputs.size() != method_->input_count()) {
        return Status(Code::kInput,
                      "Method " + method_->name() + " takes " + std::to_string(method_->input_count()) +
                          " inputs, " + std::to_string(inputs.size()) + " given.",
                      "give one for each input");
      }
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        SLIPWAY_RETURN_IF_ERROR(method_->set_input(i, inputs[i]));
      }
      return Status();
    });
  }

  Status execute() override {
    return contained([&] { return method_->execute(); });
  }

  Result<std::vector<Tensor>> outputs() override {
    return contained([&]() -> Result<std::vector<Tensor>> {
      std::vector<Tensor> found;
      for (std::size_t i = 0; i < method_->output_count(); ++i) {
        SLIPWAY_TRY(found.emplace_back(), method_->output(i));
      }
      return found;
    });
  }

  std::vector<KernelUse> kernels() const override {
    return method_ == nullptr ? std::vector<KernelUse>() : method_->kernels();
  }

  std::vector<KernelUse> kernels_of(const std::string& model_path, const std::string& method) override {
    const Status loaded = load({model_path, "", method, {}, false});
    return loaded.ok() ? kernels() : std::vector<KernelUse>();
  }

  std::vector<Fallback> fallbacks() const override { return program_.fallbacks(); }

  std::optional<WeightsInfo> weights() const override {
    std::optional<WeightsInfo> info = program_.weights();
    if (info && info->cache && !not_kept_.empty()) {
      info->cache->state = "none";
      info->cache->why = not_kept_;
      info->cache->bytes = 0;
    }
    return info;
  }

  void keep_weights() override {
    const Status kept = contained([&] {
      program_.keep_weights();
      return Status();
    });
    not_kept_ = kept.message();
  }

  Result<std::vector<std::uint8_t>> profile() override {
    return recorded([](const lean::Recorder& recorder) { return write_etdump(recorder.blocks()); });
  }

  Result<std::vector<std::uint8_t>> values() override {
    return recorded([](const lean::Recorder& recorder) { return recorder.values(); });
  }

  Result<std::vector<ProfileRow>> profile_rows(unsigned timed) override {
    return recorded([timed](const lean::Recorder& recorder) { return rows_of(recorder.blocks(), timed); });
  }

 private:
  // What `read` finds in the profile; nothing without one.
  template <typename Read, typename Found = std::invoke_result_t<Read, const lean::Recorder&>>
  Result<Found> recorded(Read read) {
    return contained([&]() -> Result<Found> {
      return program_.recorder() == nullptr ? Found() : read(*program_.recorder());
    });
  }

  Status load_method(const LoadOptions& options) {
    method_ = nullptr;
    not_kept_.clear();
    lean::LoadRequest request;
    request.open = [&options] { return lean::DataStore::open(options.model_path, options.data_path); };
    request.methods = {options.method};
    request.methods.insert(request.methods.end(), options.also.begin(), options.also.end());
    request.profile = options.profile;
    request.values = options.values;
    request.max_jumps = max_jumps_;
    request.weights_cache = cache_path_;
    request.model_path = options.model_path;
    request.data_path = options.data_path;
    SLIPWAY_RETURN_IF_ERROR(program_.load(request));
    method_ = program_.methods().front().get();
    return {};
  }

  unsigned max_jumps_ = 0;
  std::string cache_path_;
  std::string not_kept_;  // why packed weights could not be written
  lean::XnnContext context_;
  lean::LoadedProgram program_{context_};
  lean::Method* method_ = nullptr;  // the one that runs
};

}  // namespace

// Nothing of this engine's aborts, so nobody needs telling.
std::unique_ptr<Engine> make_engine(AbortHandler /*on_abort*/) {
  return std::make_unique<LeanEngine>();
}

}  // namespace slipway
