// What computes each layer of a program, and what could: the one list that everybody who chooses, shows or
// measures kernels reads.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway::lean {

// The candidates that every layer has which is not ours alone.
inline constexpr char kByXnnpack[] = "xnnpack";
inline constexpr char kByKleidiai[] = "kleidiai";

// Layers are named by their method, the number of their delegate, and the number of their node in its graph:
// "forward/0/12". That is in the program, and so the same on every processor and for every number of threads.
class LayerChoices {
 public:
  LayerChoices() = default;
  // `wanted`: by layer, the candidate that is to compute it. `listing`: all layers are to be known, not only
  // these.
  LayerChoices(std::map<std::string, std::string> wanted, bool listing)
      : wanted_(std::move(wanted)), listing_(listing) {}

  // The layers that follow are of that delegate: "forward/0".
  void begin(const std::string& delegate) { delegate_ = delegate; }

  // Whether choose() is to be asked about the node: to list its candidates takes time.
  bool asks(std::size_t node) const { return listing_ || wanted_.count(name_of(node)) != 0; }
  // Which of the candidates is to compute the node: the one that is wanted, or else `own`, the engine's
  // choice. A layer that comes again with fewer candidates keeps those that it had.
  std::size_t choose(std::size_t node, const std::vector<KernelCandidate>& candidates, std::size_t own = 0);

  // Completes what is said of a layer's kernel.
  void complete(KernelUse* use) const;
  std::string name_of(std::size_t node) const { return delegate_ + "/" + std::to_string(node); }

  // A text that is the same for the same wishes.
  std::string text() const;
  // kUsage when a layer that was named is not in what was loaded, or has no such candidate.
  Status check() const;

 private:
  struct Layer {
    std::vector<KernelCandidate> candidates;
    std::size_t own = 0;
    std::size_t chosen = 0;
  };

  std::map<std::string, std::string> wanted_;
  bool listing_ = false;
  std::string delegate_;
  std::map<std::string, Layer> layers_;
};

}  // namespace slipway::lean
