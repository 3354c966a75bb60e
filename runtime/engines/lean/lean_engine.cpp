#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etdump.h"
#include "lean/kernels/kernel.h"
#include "lean/method/arenas.h"
#include "lean/method/data_store.h"
#include "lean/method/method.h"
#include "lean/method/recorder.h"
#include "lean/xnnpack/cpu_features.h"
#include "lean/xnnpack/packed_layout.h"
#include "lean/xnnpack/weights_cache.h"
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
    return Status(Code::kMemory, "Out of memory.",
                  "use a smaller program or input, or a device with more memory");
  } catch (const std::exception& error) {
    return Status(Code::kExecution, std::string("The engine failed: ") + error.what() + ".",
                  "export the model again, and report it if that does not help");
  }
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
    return offered;
  }

  Status configure(const EngineOptions& options) override {
    const Result<std::vector<std::string>> unused = lean::known_features(options.unused_features);
    SLIPWAY_RETURN_IF_ERROR(unused);
    if (options.kleidiai == "on" && !capabilities().kleidiai) {
      return {
          Code::kUsage, "This runner was built without KleidiAI.",
          "leave --kleidiai on to bundles for 64-bit Arm; without it, the fastest kernels here are chosen"};
    }
    context_.limit({unused.value(), options.kleidiai != "off"});
    max_jumps_ = options.max_jumps;
    cache_path_ = options.weights_cache;
    EngineOptions others = options;
    others.kleidiai.clear();
    others.unused_features.clear();
    others.max_jumps = 0;
    others.weights_cache.clear();
    list_kernels_ = options.list_kernels;
    others.list_kernels = false;
    return Engine::configure(others);
  }

  std::vector<std::pair<std::string, std::string>> settings() const override {
    const auto list = [](const std::vector<std::string>& names) {
      std::string text;
      for (const std::string& name : names) {
        text += (text.empty() ? "" : ",") + name;
      }
      return text;
    };
    std::vector<std::pair<std::string, std::string>> found;
    const bool built = capabilities().kleidiai;
    found.emplace_back("kleidiai", !built ? "none" : context_.limits().kleidiai ? "on" : "off");
    const lean::UnusedFeatures& features = context_.unused();
    if (!features.unused.empty()) {
      found.emplace_back("cpu_features_unused", list(features.unused));
    }
    if (!features.absent.empty()) {
      found.emplace_back("cpu_features_absent", list(features.absent));
    }
    return found;
  }

  Result<unsigned> set_threads(unsigned count) override {
    end_methods();  // their graphs use the threads that are about to end
    return contained([&] {
      // Getting to know the processor is part of no program's loading. Whether XNNPACK runs on it, load()
      // tells.
      static_cast<void>(context_.start());
      return context_.set_threads(count);
    });
  }

  Result<ProgramInfo> describe(const std::string& model_path) override {
    return read_program_info(model_path);
  }

  Status load(const LoadOptions& options) override {
    return contained([&] { return load_method(options); });
  }

  Status choose(const std::string& method) override {
    for (const std::unique_ptr<lean::Method>& loaded : methods_) {
      if (loaded->name() == method) {
        method_ = loaded.get();
        return {};
      }
    }
    return {Code::kUsage, "Method " + method + " was not loaded.", "--also_load " + method};
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
        Result<Tensor> output = method_->output(i);
        SLIPWAY_RETURN_IF_ERROR(output);
        found.push_back(std::move(output.value()));
      }
      return found;
    });
  }

  std::vector<KernelUse> kernels() const override {
    std::vector<KernelUse> uses = method_ == nullptr ? std::vector<KernelUse>() : method_->kernels();
    for (KernelUse& use : uses) {
      choices_.complete(&use);
    }
    return uses;
  }

  std::vector<KernelUse> kernels_of(const std::string& model_path, const std::string& method) override {
    const Status loaded = load({model_path, "", method, {}, false});
    return loaded.ok() ? kernels() : std::vector<KernelUse>();
  }

  std::string processor() override {
    return contained([&]() -> Status { return context_.start(); }).ok() ? lean::processor_text()
                                                                        : std::string();
  }

  std::map<std::string, std::uint64_t> layer_times() const override {
    return method_ == nullptr ? std::map<std::string, std::uint64_t>() : method_->layer_times();
  }

  std::vector<Fallback> fallbacks() const override {
    std::vector<Fallback> all;
    for (const std::unique_ptr<lean::Method>& method : methods_) {
      const std::vector<Fallback> more = method->fallbacks();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  std::optional<WeightsInfo> weights() const override {
    if (weights_ == nullptr) {
      return {};
    }
    WeightsInfo info{
        weights_->size(), weights_->blocks(), weights_->shared(), weights_->shared_size(), 0, {}};
    info.packed = info.blocks - weights_->found();
    if (cache_ != nullptr) {
      info.cache = cache_->info();
    }
    return info;
  }

  void keep_weights() override {
    if (cache_ != nullptr && weights_ != nullptr) {
      const Status kept = contained([&] {
        cache_->keep(*weights_, load_ms_);
        return Status();
      });
      if (!kept.ok()) {
        cache_->give_up(kept.message());
      }
    }
  }

  Result<std::vector<std::uint8_t>> profile() override {
    return contained([&]() -> Result<std::vector<std::uint8_t>> {
      return recorder_ == nullptr ? std::vector<std::uint8_t>() : write_etdump(recorder_->blocks());
    });
  }

  Result<std::vector<std::uint8_t>> values() override {
    return contained([&]() -> Result<std::vector<std::uint8_t>> {
      return recorder_ == nullptr ? std::vector<std::uint8_t>() : recorder_->values();
    });
  }

  Result<std::vector<ProfileRow>> profile_rows(unsigned timed) override {
    return contained([&]() -> Result<std::vector<ProfileRow>> {
      return recorder_ == nullptr ? std::vector<ProfileRow>() : rows_of(recorder_->blocks(), timed);
    });
  }

 private:
  void end_methods() {
    method_ = nullptr;
    methods_.clear();
  }

  Status load_method(const LoadOptions& options) {
    end_methods();
    weights_.reset();
    std::uint64_t start = lean::Recorder::now();
    cache_ = cache_path_.empty() ? nullptr : std::make_unique<lean::WeightsCache>(cache_path_);
    const Status loaded = load_with(options);
    load_ms_ = static_cast<double>(lean::Recorder::now() - start) / 1e6;
    if (cache_ == nullptr || weights_ == nullptr || weights_->fits()) {
      return loaded;
    }
    // Nothing ran yet that reads them.
    end_methods();
    weights_.reset();
    cache_->doubt();
    start = lean::Recorder::now();
    const Status again = load_with(options);
    load_ms_ = static_cast<double>(lean::Recorder::now() - start) / 1e6;
    return again;
  }

  Status load_with(const LoadOptions& options) {
    recorder_ = options.profile ? std::make_unique<lean::Recorder>(options.values) : nullptr;
    const std::uint64_t start = lean::Recorder::now();
    SLIPWAY_RETURN_IF_ERROR(context_.start());
    Result<lean::DataStore> store = lean::DataStore::open(options.model_path, options.data_path);
    SLIPWAY_RETURN_IF_ERROR(store);
    store_ = std::make_unique<lean::DataStore>(std::move(store.value()));
    const lean::WeightsFile* packed =
        cache_ == nullptr ? nullptr
                          : cache_->open(*store_, options.model_path, options.data_path, wishes_of(options));
    weights_ = std::make_unique<lean::PackedWeights>(*store_, packed);
    choices_ = lean::LayerChoices(options.kernels, list_kernels_);
    const bool choosing = list_kernels_ || !options.kernels.empty();
    context_.set_choices(choosing ? &choices_ : nullptr);
    shared_ = std::make_unique<lean::SharedArenas>(store_->program());
    std::vector<std::string> names{options.method};
    names.insert(names.end(), options.also.begin(), options.also.end());
    for (const std::string& name : names) {
      Result<std::unique_ptr<lean::Method>> method =
          lean::Method::load(context_, *store_, *weights_, *shared_, name, recorder_.get());
      SLIPWAY_RETURN_IF_ERROR(method);
      if (max_jumps_ != 0) {
        method.value()->set_most_jumps(max_jumps_);
      }
      methods_.push_back(std::move(method.value()));
    }
    SLIPWAY_RETURN_IF_ERROR(choices_.check());
    method_ = methods_.front().get();
    store_->forget_all();
    if (recorder_ != nullptr) {
      recorder_->begin(kLoadBlock);
      recorder_->add(kMethodInit, start);
    }
    return {};
  }

  // What layers are computed by otherwise than the engine chooses, as a text.
  std::string wishes_of(const LoadOptions& options) const {
    return lean::LayerChoices(options.kernels, false).text() +
           (context_.limits().kleidiai ? "" : "without KleidiAI");
  }

  unsigned max_jumps_ = 0;
  bool list_kernels_ = false;
  lean::LayerChoices choices_;
  std::string cache_path_;
  double load_ms_ = 0;
  // In the order in which they need one another.
  lean::XnnContext context_;
  std::unique_ptr<lean::DataStore> store_;
  std::unique_ptr<lean::WeightsCache> cache_;
  std::unique_ptr<lean::PackedWeights> weights_;
  std::unique_ptr<lean::Recorder> recorder_;
  std::unique_ptr<lean::SharedArenas> shared_;
  std::vector<std::unique_ptr<lean::Method>> methods_;
  lean::Method* method_ = nullptr;  // the one that runs
};

}  // namespace

// Nothing of this engine's aborts, so nobody needs telling.
std::unique_ptr<Engine> make_engine(AbortHandler /*on_abort*/) {
  return std::make_unique<LeanEngine>();
}

}  // namespace slipway
