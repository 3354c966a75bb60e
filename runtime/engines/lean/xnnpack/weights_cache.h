// The file of packed weights that a run was told to use (--weights_cache).
#pragma once

#include <optional>
#include <string>

#include "lean/data/data_store.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/weights_file.h"
#include "slipway/engine.h"

namespace slipway::lean {

// To end after the packed weights that were found in it, and before the store.
class WeightsCache {
 public:
  explicit WeightsCache(const std::string& path) { info_.path = path; }

  // What is in the file for this program on this processor; nullptr when there is nothing to use. XNNPACK is
  // initialised by then. `kleidiai`: whether KleidiAI's kernels may be used.
  const WeightsFile* open(const DataStore& store, const std::string& model_path, const std::string& data_path,
                          bool kleidiai);
  // What was found is not what the layers read: the next open() finds nothing, and the file is made again.
  void doubt();
  // Writes what is new; the weights were loaded in so many milliseconds.
  void keep(const PackedWeights& weights, double load_ms);
  // There is no cache, for that reason.
  void give_up(const std::string& why);

  const WeightsCacheInfo& info() const { return info_; }

 private:
  WeightsOwner owner_;
  std::optional<MappedFile> program_;  // that we are
  std::optional<WeightsFile> file_;
  WeightsCacheInfo info_;
  bool doubted_ = false;
};

}  // namespace slipway::lean
