#include <cpuinfo.h>

#include "run.h"

namespace proof {
namespace {

struct Feature {
  const char* name;
  bool (*present)();
};

#define PROOF_X86(name) {#name, [] { return cpuinfo_has_x86_##name(); }}
#define PROOF_ARM(name) {#name, [] { return cpuinfo_has_arm_##name(); }}

// What XNNPACK looks at, the least first.
const Feature kFeatures[] = {
#if defined(__i386__) || defined(__x86_64__)
    PROOF_X86(sse2),       PROOF_X86(ssse3),      PROOF_X86(sse4_1),        PROOF_X86(avx),
    PROOF_X86(f16c),       PROOF_X86(fma3),       PROOF_X86(avx2),          PROOF_X86(avxvnni),
    PROOF_X86(avx512f),    PROOF_X86(avx512bw),   PROOF_X86(avx512dq),      PROOF_X86(avx512vl),
    PROOF_X86(avx512vbmi), PROOF_X86(avx512vnni), PROOF_X86(avx512bf16),    PROOF_X86(avx512fp16),
    PROOF_X86(gfni),       PROOF_X86(amx_int8),   PROOF_X86(avx_vnni_int8),
#elif defined(__arm__) || defined(__aarch64__)
#if defined(__arm__)
    PROOF_ARM(v6),       PROOF_ARM(v7),         PROOF_ARM(v8),
    PROOF_ARM(vfpv2),    PROOF_ARM(vfpv3),
#endif
    PROOF_ARM(neon),     PROOF_ARM(neon_fp16),  PROOF_ARM(neon_fma),
    PROOF_ARM(neon_v8),  PROOF_ARM(fp16_arith), PROOF_ARM(neon_fp16_arith),
    PROOF_ARM(neon_dot), PROOF_ARM(neon_bf16),  PROOF_ARM(i8mm),
    PROOF_ARM(sve),      PROOF_ARM(sve2),       PROOF_ARM(sme),
    PROOF_ARM(sme2),
#endif
};

#undef PROOF_X86
#undef PROOF_ARM

}  // namespace

std::string KleidiaiVersion() {
  return PROOF_KLEIDIAI_VERSION;
}
std::string XnnpackVersion() {
  return PROOF_XNNPACK_VERSION;
}

Cpu ReadCpu() {
  Cpu cpu;
  cpu.known = cpuinfo_initialize();
  if (!cpu.known) return cpu;
  if (cpuinfo_get_packages_count() > 0) cpu.name = cpuinfo_get_package(0)->name;
  for (const Feature& feature : kFeatures) {
    if (feature.present()) cpu.features.emplace_back(feature.name);
  }
#if defined(__i386__) || defined(__x86_64__)
#if !defined(__ANDROID__)
  // XNNPACK leaves its half-precision kernels for x86 out of mobile builds.
  cpu.half_emulated = cpuinfo_has_x86_avx2();
#endif
#elif defined(_WIN32) && defined(__aarch64__)
  // XNNPACK does not ask cpuinfo on Windows: there dot products stand for half precision as well.
  cpu.half_arithmetic = cpuinfo_has_arm_neon_dot();
#elif defined(__arm__) || defined(__aarch64__)
  cpu.half_arithmetic = cpuinfo_has_arm_neon_fp16_arith();
#endif
#if defined(__aarch64__)
  if (!KleidiaiVersion().empty()) {
    cpu.kleidiai_dotprod = cpuinfo_has_arm_neon_dot();
    cpu.kleidiai_i8mm = cpuinfo_has_arm_i8mm();
    cpu.kleidiai_sme2 = cpuinfo_has_arm_sme2();
  }
#endif
  return cpu;
}

}  // namespace proof
