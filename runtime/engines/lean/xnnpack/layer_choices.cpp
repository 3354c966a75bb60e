#include "lean/xnnpack/layer_choices.h"

#include <algorithm>

namespace slipway::lean {

std::size_t LayerChoices::choose(std::size_t node, const std::vector<KernelCandidate>& candidates,
                                 std::size_t own) {
  const std::string name = name_of(node);
  Layer& layer = layers_[name];
  if (layer.candidates.size() < candidates.size()) {
    layer = {candidates, own, own};
  }
  const auto wish = wanted_.find(name);
  const std::string& choice = wish == wanted_.end() ? candidates[own].choice : wish->second;
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const KernelCandidate& one) { return one.choice == choice; });
  const std::size_t chosen =
      found == candidates.end() ? own : static_cast<std::size_t>(found - candidates.begin());
  for (std::size_t i = 0; i < layer.candidates.size(); ++i) {
    if (layer.candidates[i].choice == candidates[chosen].choice) {
      layer.chosen = i;
    }
  }
  return chosen;
}

void LayerChoices::complete(KernelUse* use) const {
  const auto found = layers_.find(use->layer);
  if (found != layers_.end()) {
    use->candidates = found->second.candidates;
    use->choice = use->candidates[found->second.chosen].choice;
    use->own_choice = use->candidates[found->second.own].choice;
  }
}

std::string LayerChoices::text() const {
  std::string all;
  for (const auto& [layer, choice] : wanted_) {
    all += layer + " " + choice + "\n";
  }
  return all;
}

Status LayerChoices::check() const {
  for (const auto& [name, choice] : wanted_) {
    const auto layer = layers_.find(name);
    if (layer == layers_.end()) {
      return {Code::kUsage,
              "The program has no layer '" + name + "' among those that were loaded.",
              "--describe --kernels names the layers",
              {name}};
    }
    std::string names;
    for (const KernelCandidate& candidate : layer->second.candidates) {
      names += (names.empty() ? "" : ", ") + candidate.choice;
      if (candidate.choice == choice) {
        names.clear();
        break;
      }
    }
    if (!names.empty()) {
      return {Code::kUsage,
              "Layer " + name + " has no kernel '" + choice + "' here.",
              "give one of " + names,
              {choice}};
    }
  }
  return {};
}

}  // namespace slipway::lean
