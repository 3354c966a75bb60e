// The kernels that a run was told to use for some layers (--kernel_choices, --tuned).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runner/options.h"
#include "runner/tune/keyed_text.h"
#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// What became of the file, for the result.
struct TunedInfo {
  std::string path;
  std::string state;  // "used"; "none": there is none, or it is not for this run
  std::string why;    // there is none
  KernelChoices choices;
};

struct KernelPlan {
  unsigned threads = 0;  // 0: as the command line says
  std::map<std::string, std::string> kernels;
  std::optional<TunedInfo> info;  // with --tuned

  // The plan without its file, for that reason.
  void give_up(const std::string& why);
};

TextOwner text_owner(const Options& options, Engine& engine);

// kUsage when --kernel_choices names a file that cannot be used; one of --tuned is ignored with a warning.
Result<KernelPlan> plan_kernels(const Options& options, Engine& engine);

// Loads with the plan's kernels. Layers that the program does not have are an error as above.
Status load_planned(Engine& engine, LoadOptions options, KernelPlan* plan);

}  // namespace slipway
