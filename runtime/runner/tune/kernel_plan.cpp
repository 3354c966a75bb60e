#include "runner/tune/kernel_plan.h"

#include <cstdio>
#include <utility>

#include "base/platform.h"
#include "base/text.h"

namespace slipway {

void KernelPlan::give_up(const std::string& why) {
  threads = 0;
  kernels.clear();
  info->state = "none";
  info->why = why;
  info->choices = {};
}

TextOwner text_owner(const Options& options, Engine& engine) {
  TextOwner owner{engine.processor(), {own_path(), options.model_path}};
  if (!options.data_path.empty()) {
    owner.files.push_back(options.data_path);
  }
  return owner;
}

Result<KernelPlan> plan_kernels(const Options& options, Engine& engine) {
  KernelPlan plan;
  const bool tuned = !options.tuned.empty();
  const std::string& path = tuned ? options.tuned : options.kernel_choices;
  if (path.empty()) {
    return plan;
  }
  if (tuned) {
    plan.info = TunedInfo{path, "used", "", {}};
    if (!exists(path)) {
      plan.give_up("there is none");
      return plan;
    }
  }
  const TextOwner owner = text_owner(options, engine);
  if (owner.processor.empty()) {
    return Status(Code::kUsage, "The engine " + engine.info().name + " takes no choice of kernels.",
                  "leave --kernel_choices and --tuned to bundles of the engine lean");
  }
  Result<KernelChoices> read = read_choices(path, owner, tuned);
  if (!read.ok()) {
    if (!tuned) {
      return Status(Code::kUsage, path + " cannot be used: " + read.status().message() + ".",
                    "make it again for this program, runner and processor: ./inv tune, or by hand "
                    "(docs/compare.md)");
    }
    plan.give_up(read.status().message());
    return plan;
  }
  plan.threads = read.value().threads;
  for (const ChosenLayer& layer : read.value().layers) {
    plan.kernels[layer.layer] = layer.choice;
  }
  if (plan.info) {
    plan.info->choices = std::move(read.value());
  }
  return plan;
}

Status load_planned(Engine& engine, LoadOptions options, KernelPlan* plan) {
  options.kernels = plan->kernels;
  Status status = engine.load(options);
  if (status.code() == Code::kUsage && plan->info && !plan->kernels.empty()) {
    plan->give_up(status.message());
    options.kernels.clear();
    status = engine.load(options);
  }
  if (plan->info && plan->info->state == "none" && plan->info->why != "there is none") {
    std::fprintf(
        stderr, "%s",
        printable("pte_runner: not tuned: " + plan->info->path + ": " + plan->info->why + "\n").c_str());
  }
  return status;
}

}  // namespace slipway
