#include "lean/loaded_program.h"

#include <algorithm>
#include <utility>

#include "etdump.h"

namespace slipway::lean {

Status LoadedProgram::load(const LoadRequest& request) {
  end_methods();
  weights_.reset();
  cache_ = request.weights_cache.empty() ? nullptr : std::make_unique<WeightsCache>(request.weights_cache);
  const std::uint64_t start = Recorder::now();
  Status loaded = load_methods(request);
  load_ms_ = static_cast<double>(Recorder::now() - start) / 1e6;
  return loaded;
}

Status LoadedProgram::load_methods(const LoadRequest& request) {
  recorder_ = request.profile ? std::make_unique<Recorder>(request.values) : nullptr;
  const std::uint64_t start = Recorder::now();
  SLIPWAY_RETURN_IF_ERROR(context_.start());
  SLIPWAY_TRY(DataStore store, request.open());
  store_ = std::make_unique<DataStore>(std::move(store));
  const WeightsFile* packed = cache_ == nullptr ? nullptr
                                                : cache_->open(*store_, request.model_path, request.data_path,
                                                               context_.limits().kleidiai);
  weights_ = std::make_unique<PackedWeights>(*store_, packed);
  shared_ = std::make_unique<SharedArenas>(store_->program());
  std::vector<std::string> names = request.methods;
  for (std::size_t i = 0; request.methods.empty() && i < store_->program().execution_plan()->size(); ++i) {
    names.push_back(item_of(store_->program().execution_plan(), i)->name()->str());
  }
  for (const std::string& name : names) {
    SLIPWAY_TRY(methods_.emplace_back(),
                Method::load(context_, *store_, *weights_, *shared_, name, recorder_.get()));
    if (request.max_jumps != 0) {
      methods_.back()->set_most_jumps(request.max_jumps);
    }
  }
  store_->forget_all();
  if (recorder_ != nullptr) {
    recorder_->begin(kLoadBlock);
    recorder_->add(kMethodInit, start);
  }
  return {};
}

Method* LoadedProgram::find(const std::string& name) const {
  const auto found = std::find_if(methods_.begin(), methods_.end(),
                                  [&name](const auto& method) { return method->name() == name; });
  return found == methods_.end() ? nullptr : found->get();
}

Checksum LoadedProgram::checksum() const {
  std::vector<Checksum> sums;
  for (const MappedFile* file : store_->files()) {
    sums.push_back(checksum_of(file->data(), file->size()));
  }
  store_->forget_all();
  return checksum_of(sums.data(), sums.size() * sizeof(Checksum));
}

std::vector<Fallback> LoadedProgram::fallbacks() const {
  std::vector<Fallback> all;
  for (const std::unique_ptr<Method>& method : methods_) {
    const std::vector<Fallback> more = method->fallbacks();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::optional<WeightsInfo> LoadedProgram::weights() const {
  if (weights_ == nullptr) {
    return {};
  }
  WeightsInfo info{weights_->size(), weights_->blocks(), weights_->shared(), weights_->shared_size(), 0, {}};
  info.packed = info.blocks - weights_->found();
  if (cache_ != nullptr) {
    info.cache = cache_->info();
  }
  return info;
}

void LoadedProgram::keep_weights() {
  if (cache_ != nullptr && weights_ != nullptr) {
    cache_->keep(*weights_, load_ms_);
  }
}

}  // namespace slipway::lean
