#include "lean/xnnpack/kernel_choices.h"

#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>

#include "base/text.h"

namespace slipway::lean {
namespace {

enum Processors : unsigned { kArm = 1, kArm64 = 2, kX86 = 4 };

#if XNN_ARCH_ARM
constexpr unsigned kHere = kArm;
#elif XNN_ARCH_ARM64
constexpr unsigned kHere = kArm64;
#elif XNN_ARCH_X86 || XNN_ARCH_X86_64
constexpr unsigned kHere = kX86;
#else
constexpr unsigned kHere = 0;
#endif

struct Feature {
  std::string_view name;
  std::string_view needs;     // features without which no processor has it
  unsigned chosen_by;         // where kernels are chosen by it
  unsigned always_there = 0;  // where every processor that we build for has it
};

// Names as Linux has them in /proc/cpuinfo, or as the compilers' flags do where those are shorter.
constexpr Feature kFeatures[] = {
    {"neon", "", kArm, kArm64},
    {"vfpv4", "neon", kArm, kArm64},
    {"fp16", "", kArm | kArm64},
    {"bf16", "", kArm | kArm64},
    {"dotprod", "", kArm | kArm64},
    {"i8mm", "dotprod", kArm64},
    {"sve", "", kArm64},
    {"sve2", "sve", kArm64},
    {"sme", "", kArm64},
    {"sme2", "sme", kArm64},
    {"ssse3", "", kX86},
    {"sse4_1", "ssse3", kX86},
    {"avx", "sse4_1", kX86},
    {"f16c", "avx", kX86},
    {"fma", "avx", kX86},
    {"avx2", "avx fma f16c", kX86},
    {"avx_vnni", "avx2", kX86},
    {"avx_vnni_int8", "avx2", kX86},
    {"avx512f", "avx2 fma f16c", kX86},
    {"avx512bw", "avx512f", kX86},
    {"avx512vbmi", "avx512bw", kX86},
    {"avx512_vnni", "avx512bw", kX86},
    {"avx512_fp16", "avx512bw", kX86},
    {"gfni", "avx", kX86},
    {"amx_int8", "avx512_vnni gfni", kX86},
};

// What XNNPACK chooses by, with the features that it stands for besides those that they need themselves.
struct ChosenFeatures {
  std::string_view features;
  bool xnn_hardware_config::* used;
  std::uint64_t flag;
};

constexpr ChosenFeatures kChosen[] = {
#if XNN_ARCH_ARM
    {"neon", &xnn_hardware_config::use_arm_neon, xnn_arch_arm_neon},
    {"vfpv4", &xnn_hardware_config::use_arm_neon_fp16, xnn_arch_arm_neon_fp16},
    {"vfpv4", &xnn_hardware_config::use_arm_neon_fma, xnn_arch_arm_neon_fma},
    {"neon", &xnn_hardware_config::use_arm_neon_v8, xnn_arch_arm_neon_v8},
    {"neon fp16", &xnn_hardware_config::use_arm_neon_fp16_arith, xnn_arch_arm_neon_fp16_arith},
    {"neon bf16", &xnn_hardware_config::use_arm_neon_bf16, xnn_arch_arm_neon_bf16},
    {"neon dotprod", &xnn_hardware_config::use_arm_neon_dot, xnn_arch_arm_neon_dot},
    {"fp16", &xnn_hardware_config::use_arm_fp16_arith, xnn_arch_arm_fp16_arith},
#elif XNN_ARCH_ARM64
    {"fp16", &xnn_hardware_config::use_arm_fp16_arith, xnn_arch_arm_fp16_arith},
    {"fp16", &xnn_hardware_config::use_arm_neon_fp16_arith, xnn_arch_arm_neon_fp16_arith},
    {"bf16", &xnn_hardware_config::use_arm_neon_bf16, xnn_arch_arm_neon_bf16},
    {"dotprod", &xnn_hardware_config::use_arm_neon_dot, xnn_arch_arm_neon_dot},
    {"i8mm", &xnn_hardware_config::use_arm_neon_i8mm, xnn_arch_arm_neon_i8mm},
    {"sve", &xnn_hardware_config::use_arm_sve, xnn_arch_arm_sve},
    {"sve2", &xnn_hardware_config::use_arm_sve2, xnn_arch_arm_sve2},
    {"sme", &xnn_hardware_config::use_arm_sme, xnn_arch_arm_sme},
    {"sme2", &xnn_hardware_config::use_arm_sme2, xnn_arch_arm_sme2},
#elif XNN_ARCH_X86 || XNN_ARCH_X86_64
    {"ssse3", &xnn_hardware_config::use_x86_ssse3, xnn_arch_x86_ssse3},
    {"sse4_1", &xnn_hardware_config::use_x86_sse4_1, xnn_arch_x86_sse4_1},
    {"avx", &xnn_hardware_config::use_x86_avx, xnn_arch_x86_avx},
    {"f16c", &xnn_hardware_config::use_x86_f16c, xnn_arch_x86_f16c},
    {"fma", &xnn_hardware_config::use_x86_fma3, xnn_arch_x86_fma3},
    {"avx2", &xnn_hardware_config::use_x86_avx2, xnn_arch_x86_avx2},
    {"avx_vnni", &xnn_hardware_config::use_x86_avxvnni, xnn_arch_x86_avxvnni},
    {"avx_vnni_int8", &xnn_hardware_config::use_x86_avxvnniint8, xnn_arch_x86_avxvnniint8},
    {"avx512f", &xnn_hardware_config::use_x86_avx512f, xnn_arch_x86_avx512f},
    {"avx512bw", &xnn_hardware_config::use_x86_avx512skx, xnn_arch_x86_avx512skx},
    {"avx512vbmi", &xnn_hardware_config::use_x86_avx512vbmi, xnn_arch_x86_avx512vbmi},
    {"avx512_vnni", &xnn_hardware_config::use_x86_avx512vnni, xnn_arch_x86_avx512vnni},
    {"avx512_vnni gfni", &xnn_hardware_config::use_x86_avx512vnnigfni, xnn_arch_x86_avx512vnnigfni},
    {"avx512_fp16", &xnn_hardware_config::use_x86_avx512fp16, xnn_arch_x86_avx512fp16},
    {"amx_int8", &xnn_hardware_config::use_x86_avx512amx, xnn_arch_x86_avx512amx},
    {"avx512bw", &xnn_hardware_config::use_x86_avx256skx, xnn_arch_x86_avx256skx},
    {"avx512bw avx_vnni", &xnn_hardware_config::use_x86_avx256vnni, xnn_arch_x86_avx256vnni},
    {"avx512bw avx_vnni gfni", &xnn_hardware_config::use_x86_avx256vnnigfni, xnn_arch_x86_avx256vnnigfni},
#else
    {"", nullptr, 0},
#endif
};

const Feature* find_feature(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFeatures), std::end(kFeatures),
                                   [&](const Feature& feature) { return feature.name == name; });
  return found == std::end(kFeatures) ? nullptr : found;
}

// Those that kernels are chosen by here.
std::string features_here() {
  std::vector<std::string> names;
  for (const Feature& feature : kFeatures) {
    if ((feature.chosen_by & kHere) != 0) {
      names.emplace_back(feature.name);
    }
  }
  return joined(names);
}

using Names = std::set<std::string_view>;

// Whether one of these features, of the table, is not on a processor without `gone`.
bool fall_with(std::string_view features, const Names& gone) {
  const std::vector<std::string_view> names = pieces(features, " ");
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return gone.count(name) != 0 || fall_with(find_feature(name)->needs, gone);
  });
}

}  // namespace

Result<std::vector<std::string>> known_features(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const std::string& name : names) {
    const Feature* feature = find_feature(name);
    if (feature == nullptr) {
      return Status(Code::kUsage, "There is no CPU feature '" + name + "'.",
                    "kernels are chosen here by " + features_here(), {name});
    }
    if ((feature->always_there & kHere) != 0) {
      return Status(Code::kUsage, "Every processor of this target has " + std::string(feature->name) + ".",
                    "leave -" + std::string(feature->name) + " out", {name});
    }
    if (std::find(known.begin(), known.end(), feature->name) == known.end()) {
      known.emplace_back(feature->name);
    }
  }
  return known;
}

UnusedFeatures leave_unused(const std::vector<std::string>& names) {
  UnusedFeatures done;
  if (names.empty()) {
    return done;  // As nearly always. Comparing names took 40 % of a small program's instructions.
  }
  // The table is a variable of XNNPACK's, which it fills once and returns as constant.
  auto* hardware = const_cast<xnn_hardware_config*>(xnn_init_hardware_config());
  Names there;
  for (const ChosenFeatures& row : kChosen) {
    if (hardware != nullptr && row.used != nullptr && hardware->*row.used) {
      const std::vector<std::string_view> features = pieces(row.features, " ");
      there.insert(features.begin(), features.end());
    }
  }
  const Names gone(names.begin(), names.end());
  for (const Feature& feature : kFeatures) {
    const bool has = there.count(feature.name) != 0;
    if (has && fall_with(feature.name, gone)) {
      done.unused.emplace_back(feature.name);
    } else if (!has && gone.count(feature.name) != 0) {
      done.absent.emplace_back(feature.name);
    }
  }
  for (const ChosenFeatures& row : kChosen) {
    if (hardware != nullptr && fall_with(row.features, gone)) {
      hardware->*row.used = false;
      hardware->arch_flags &= ~row.flag;
    }
  }
  return done;
}

}  // namespace slipway::lean
