#include "lean/xnnpack/weights_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lean/xnnpack/packed_layout.h"

namespace slipway::lean {
namespace {

// Where a file system changes what is known of a file by itself, writing again does not help.
constexpr std::uint64_t kMostRewritten = 3;

}  // namespace

const WeightsFile* WeightsCache::open(const DataStore& store, const std::string& model_path,
                                      const std::string& data_path, bool kleidiai) {
  owner_ = {processor_sum(kleidiai), {}};
  file_.reset();
  const std::string own = own_path();
  Result<MappedFile> program = MappedFile::open(own);
  if (!program.ok()) {
    give_up("this system does not tell where the runner's own file is");
    return nullptr;
  }
  program_ = std::move(program.value());
  owner_.files.push_back({own, &*program_});
  const std::vector<const MappedFile*> files = store.files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    owner_.files.push_back({i == 0 ? model_path : data_path, files[i]});
  }
  if (doubted_) {
    return nullptr;
  }
  Result<WeightsFile> file = WeightsFile::open(info_.path, owner_);
  if (!file.ok()) {
    if (file.status().code() == Code::kUsage) {
      give_up(info_.path + ": " + file.status().message());
    } else {
      info_.why = file.status().message();
    }
    return nullptr;
  }
  file_ = std::move(file.value());
  return &*file_;
}

void WeightsCache::doubt() {
  doubted_ = true;
  info_.why = "its weights were not packed as the layers read them";
}

void WeightsCache::give_up(const std::string& why) {
  info_.state = "none";
  info_.why = why;
  info_.bytes = 0;
}

void WeightsCache::keep(const PackedWeights& weights, double load_ms) {
  if (info_.state == "none") {
    return;
  }
  info_.found = weights.found();
  bool news = false;
  std::vector<PackedBlock> blocks = weights.to_keep(&news);
  const bool stale = file_ && !file_->as_written() && file_->rewritten() < kMostRewritten;
  WeightsNote note{0, file_ ? std::max(file_->packing_load_ms(), load_ms) : load_ms};
  if (file_ && !news) {
    note.packing_load_ms = info_.packing_load_ms = file_->packing_load_ms();
  }
  if (file_ && !news && !stale) {
    info_.state = "used";
    info_.bytes = file_->size();
    return;
  }
  if (file_ && !news) {
    info_.why = "it was copied or moved, or the program was";
    note.rewritten = file_->rewritten() + 1;
    blocks = file_->blocks();
  } else if (file_) {
    info_.why = "it lacked some of the layers";
  }
  const Status written = write_weights(info_.path, owner_, blocks, note);
  if (!written.ok()) {
    if (file_ && !news) {
      info_.state = "used";
      info_.bytes = file_->size();
    } else {
      give_up(written.message());
    }
    return;
  }
  info_.state = file_ ? "extended" : "made";
  const Result<MappedFile> made = MappedFile::open(info_.path);
  info_.bytes = made.ok() ? made.value().size() : 0;
}

}  // namespace slipway::lean
