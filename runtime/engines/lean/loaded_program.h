// A program in memory: its files, packed weights, what its methods share, and the methods.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "lean/data/data_store.h"
#include "lean/method/method.h"
#include "lean/method/recorder.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/xnn_delegate.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::lean {

struct LoadRequest {
  std::function<Result<DataStore>()> open;
  std::vector<std::string> methods;  // to make ready, in this order; none: all
  bool profile = false;
  // With a profile: keep intermediate values, too.
  bool values = false;
  unsigned max_jumps = 0;     // 0: the engine's own limit
  std::string weights_cache;  // a file, or empty; then model_path and data_path name what `open` opens
  std::string model_path;
  std::string data_path;
};

class LoadedProgram {
 public:
  // The context must outlive it.
  explicit LoadedProgram(XnnContext& context) : context_(context) {}

  // Ends what was loaded before. May throw std::bad_alloc.
  Status load(const LoadRequest& request);
  void end_methods() { methods_.clear(); }

  const std::vector<std::unique_ptr<Method>>& methods() const { return methods_; }
  // nullptr when it was not loaded.
  Method* find(const std::string& name) const;

  // Of all bytes of its files.
  Checksum checksum() const;
  std::vector<Fallback> fallbacks() const;
  std::optional<WeightsInfo> weights() const;
  // Writes the file of packed weights, if there is to be one.
  void keep_weights();
  // nullptr without a profile.
  const Recorder* recorder() const { return recorder_.get(); }

 private:
  Status load_methods(const LoadRequest& request);

  XnnContext& context_;
  double load_ms_ = 0;
  // In the order in which they need one another.
  std::unique_ptr<DataStore> store_;
  std::unique_ptr<WeightsCache> cache_;
  std::unique_ptr<PackedWeights> weights_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<SharedArenas> shared_;
  std::vector<std::unique_ptr<Method>> methods_;
};

}  // namespace slipway::lean
