#include <sys/resource.h>
#include <sys/sysctl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/platform.h"
#include "base/text.h"

namespace slipway {
namespace {

// sysctl's names of Arm's features, and how Linux names them.
struct Feature {
  const char* key;
  const char* name;
};

constexpr Feature kArmFeatures[] = {
    {"hw.optional.floatingpoint", "fp"},         {"hw.optional.neon", "asimd"},
    {"hw.optional.arm.FEAT_LSE", "atomics"},     {"hw.optional.arm.FEAT_FP16", "asimdhp"},
    {"hw.optional.arm.FEAT_DotProd", "asimddp"}, {"hw.optional.arm.FEAT_I8MM", "i8mm"},
    {"hw.optional.arm.FEAT_BF16", "bf16"},       {"hw.optional.arm.FEAT_SME", "sme"},
    {"hw.optional.arm.FEAT_SME2", "sme2"},
};

int number(const char* key) {
  int value = 0;
  std::size_t size = sizeof(value);
  return ::sysctlbyname(key, &value, &size, nullptr, 0) == 0 ? value : 0;
}

std::string text(const char* key) {
  std::size_t size = 0;
  if (::sysctlbyname(key, nullptr, &size, nullptr, 0) != 0 || size == 0) {
    return {};
  }
  std::string value(size, '\0');
  if (::sysctlbyname(key, value.data(), &size, nullptr, 0) != 0) {
    return {};
  }
  value.resize(std::min(size, value.find('\0')));
  return value;
}

// "SSE4.1 AVX1.0" as Linux writes it: "sse4_1", "avx".
void add_intel_features(const std::string& words, std::vector<std::string>* features) {
  for (const std::string_view piece : pieces(words, " ")) {
    std::string word(piece);
    std::transform(word.begin(), word.end(), word.begin(), [](char letter) {
      return letter == '.' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    });
    features->push_back(word == "avx1_0" ? "avx" : word);
  }
}

}  // namespace

CpuInfo cpu_info() {
  CpuInfo info;
  struct utsname names = {};
  if (::uname(&names) == 0) {
    info.arch = names.machine;
  }
  info.model = text("machdep.cpu.brand_string");
  for (const Feature& feature : kArmFeatures) {
    if (number(feature.key) != 0) {
      info.features.emplace_back(feature.name);
    }
  }
  add_intel_features(text("machdep.cpu.features"), &info.features);
  add_intel_features(text("machdep.cpu.leaf7_features"), &info.features);
  info.cores = usable_cores();
  return info;
}

// macOS ties no process to some cores.
unsigned usable_cores() {
  return static_cast<unsigned>(std::max(1, number("hw.physicalcpu")));
}

// macOS compresses and swaps what is not used: what it has in all is the only bound that holds.
std::optional<MemoryLeft> memory_left_below(const std::string& /*root*/) {
  std::uint64_t bytes = 0;
  std::size_t size = sizeof(bytes);
  if (::sysctlbyname("hw.memsize", &bytes, &size, nullptr, 0) != 0) {
    return {};
  }
  return MemoryLeft{bytes, "this device"};
}

std::optional<MemoryLeft> memory_left() {
  std::optional<MemoryLeft> least = memory_left_below("");
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      (!least || limit.rlim_cur < least->bytes)) {
    least = MemoryLeft{limit.rlim_cur, "ulimit -v"};
  }
  return least;
}

}  // namespace slipway
