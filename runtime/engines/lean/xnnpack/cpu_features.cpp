#include "lean/xnnpack/kernel_choices.h"

#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
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
  std::string_view aliases;   // separated by blanks
  std::string_view needs;     // features without which no processor has it
  unsigned chosen_by;         // where kernels are chosen by it
  unsigned always_there = 0;  // where every processor that we build for has it
};

// Names as Linux has them in /proc/cpuinfo, or as the compilers' flags do where those are shorter.
constexpr Feature kFeatures[] = {
    {"neon", "asimd simd", "", kArm, kArm64},
    {"vfpv4", "neonfma", "neon", kArm, kArm64},
    {"fp16", "asimdhp fphp", "", kArm | kArm64},
    {"bf16", "", "", kArm | kArm64},
    {"dotprod", "asimddp dot", "", kArm | kArm64},
    {"i8mm", "", "dotprod", kArm64},
    {"sve", "", "", kArm64},
    {"sve2", "", "sve", kArm64},
    {"sme", "", "", kArm64},
    {"sme2", "", "sme", kArm64},
    {"ssse3", "", "", kX86},
    {"sse4_1", "", "ssse3", kX86},
    {"avx", "", "sse4_1", kX86},
    {"f16c", "", "avx", kX86},
    {"fma", "fma3", "avx", kX86},
    {"avx2", "", "avx fma f16c", kX86},
    {"avx_vnni", "", "avx2", kX86},
    {"avx_vnni_int8", "", "avx2", kX86},
    {"avx512f", "avx512", "avx2 fma f16c", kX86},
    {"avx512bw", "avx512dq avx512vl avx512skx", "avx512f", kX86},
    {"avx512vbmi", "", "avx512bw", kX86},
    {"avx512_vnni", "", "avx512bw", kX86},
    {"avx512_fp16", "", "avx512bw", kX86},
    {"gfni", "avx512vnnigfni", "avx", kX86},
    {"amx_int8", "amx amx_tile", "avx512_vnni gfni", kX86},
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

std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c != '_' && c != '.') {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return text;
}

const Feature* find_feature(std::string_view name) {
  const std::string wanted = plain(name);
  for (const Feature& feature : kFeatures) {
    const std::vector<std::string_view> aliases = pieces(feature.aliases, " ");
    if (plain(feature.name) == wanted ||
        std::any_of(aliases.begin(), aliases.end(),
                    [&](std::string_view one) { return plain(one) == wanted; })) {
      return &feature;
    }
  }
  return nullptr;
}

// Letters to insert, remove or replace.
std::size_t distance_between(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  for (std::size_t j = 0; j <= other.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= one.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= other.size(); ++j) {
      const std::size_t replaced = diagonal + (one[i - 1] == other[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Those of this kind of processor before equally near ones.
std::string_view nearest_feature(std::string_view name) {
  const std::string wanted = plain(name).substr(0, 64);
  std::string_view found;
  std::size_t least = SIZE_MAX;
  for (const Feature& feature : kFeatures) {
    const std::size_t here = (feature.chosen_by & kHere) != 0 ? 0 : 1;
    const std::size_t distance = 2 * distance_between(wanted, plain(feature.name)) + here;
    if (distance < least) {
      least = distance;
      found = feature.name;
    }
  }
  return found;
}

// Whether a processor without `gone` lacks the feature.
bool falls_with(std::string_view name, const std::set<std::string_view>& gone) {
  if (gone.count(name) != 0) {
    return true;
  }
  const Feature* feature = find_feature(name);
  const std::vector<std::string_view> needs =
      feature == nullptr ? std::vector<std::string_view>() : pieces(feature->needs, " ");
  return std::any_of(needs.begin(), needs.end(), [&](std::string_view one) { return falls_with(one, gone); });
}

bool chosen_by(const ChosenFeatures& row, std::string_view feature) {
  const std::vector<std::string_view> features = pieces(row.features, " ");
  return std::find(features.begin(), features.end(), feature) != features.end();
}

}  // namespace

Result<std::vector<std::string>> known_features(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const std::string& name : names) {
    const Feature* feature = find_feature(name);
    if (feature == nullptr) {
      return Status(Code::kUsage, "There is no CPU feature '" + name + "'.",
                    "--cpu_features=-" + std::string(nearest_feature(name)), {name});
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
  const std::set<std::string_view> gone(names.begin(), names.end());
  for (const Feature& feature : kFeatures) {
    const bool there = hardware != nullptr &&
                       std::any_of(std::begin(kChosen), std::end(kChosen), [&](const ChosenFeatures& row) {
                         return row.used != nullptr && chosen_by(row, feature.name) && hardware->*row.used;
                       });
    if (there && falls_with(feature.name, gone)) {
      done.unused.emplace_back(feature.name);
    } else if (!there && gone.count(feature.name) != 0) {
      done.absent.emplace_back(feature.name);
    }
  }
  for (const ChosenFeatures& row : kChosen) {
    const std::vector<std::string_view> features = pieces(row.features, " ");
    if (hardware != nullptr && row.used != nullptr &&
        std::any_of(features.begin(), features.end(),
                    [&](std::string_view one) { return falls_with(one, gone); })) {
      hardware->*row.used = false;
      hardware->arch_flags &= ~row.flag;
    }
  }
  return done;
}

}  // namespace slipway::lean
