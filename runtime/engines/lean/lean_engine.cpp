#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "data_store.h"
#include "kernel.h"
#include "method.h"
#include "program_info.h"
#include "slipway/engine.h"
#include "xnn_delegate.h"

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
    return {{lean::kXnnpackBackend}, lean::kernel_names(), SLIPWAY_KLEIDIAI != 0};
  }

  Result<unsigned> set_threads(unsigned count) override {
    method_.reset();  // its graphs use the threads that are about to end
    return contained([&] { return context_.set_threads(count); });
  }

  Result<ProgramInfo> describe(const std::string& model_path) override {
    return read_program_info(model_path);
  }

  Status load(const LoadOptions& options) override {
    return contained([&] { return load_method(options); });
  }

  Status set_inputs(const std::vector<Tensor>& inputs) override {
    return contained([&] {
      for (std::size_t i = 0; i < inputs.size() && i < method_->input_count(); ++i) {
        const Status given = method_->set_input(i, inputs[i]);
        if (!given.ok()) {
          return given;
        }
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
        if (!output.ok()) {
          return output.status();
        }
        found.push_back(std::move(output.value()));
      }
      return found;
    });
  }

  Result<std::vector<std::uint8_t>> profile() override { return std::vector<std::uint8_t>(); }

 private:
  Status load_method(const LoadOptions& options) {
    method_.reset();
    const Status started = context_.start();
    if (!started.ok()) {
      return started;
    }
    Result<lean::DataStore> store = lean::DataStore::open(options.model_path, options.data_path);
    if (!store.ok()) {
      return store.status();
    }
    store_ = std::make_unique<lean::DataStore>(std::move(store.value()));
    weights_ = std::make_unique<lean::PackedWeights>(*store_);
    Result<std::unique_ptr<lean::Method>> method =
        lean::Method::load(context_, *store_, *weights_, options.method, options.profile);
    if (!method.ok()) {
      return method.status();
    }
    method_ = std::move(method.value());
    return {};
  }

  // In the order in which they need one another.
  lean::XnnContext context_;
  std::unique_ptr<lean::DataStore> store_;
  std::unique_ptr<lean::PackedWeights> weights_;
  std::unique_ptr<lean::Method> method_;
};

}  // namespace

// Nothing of this engine's aborts, so nobody needs telling.
std::unique_ptr<Engine> make_engine(AbortHandler /*on_abort*/) {
  return std::make_unique<LeanEngine>();
}

}  // namespace slipway
