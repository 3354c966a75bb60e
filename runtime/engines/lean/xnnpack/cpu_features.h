// The processor's features that decide between kernels, and how a run leaves some of them unused: it then
// computes with what a lesser processor would choose.
#pragma once

#include <string>
#include <vector>

#include "slipway/status.h"

namespace slipway::lean {

// Our names of features, in the order given, each once: underscores and dots do not count ("sse4.1" is
// "sse4_1"), and /proc/cpuinfo's own names ("asimddp") are known, too. kUsage for a name that means nothing
// or a feature that every processor of this kind has; the nearest name is suggested then.
Result<std::vector<std::string>> known_features(const std::vector<std::string>& names);

struct UnusedFeatures {
  std::vector<std::string> unused;  // were there, with those that build on them
  std::vector<std::string> absent;  // no kernel here would have used them
};

// From now on, no kernel of XNNPACK's, of KleidiAI's or of ours that wants one of these features is chosen in
// this process. To be called before XNNPACK is initialised; there is no way back, because XNNPACK reads its
// table of the processor once.
UnusedFeatures leave_unused(const std::vector<std::string>& names);

}  // namespace slipway::lean
