#include <cpuinfo.h>
#include <stdio.h>

// What every CPU of these architectures has must be found, and at least one core.
int main(void) {
  if (!cpuinfo_initialize()) {
    puts("cpuinfo: cannot tell what this CPU is");
    return 1;
  }
#if CPUINFO_ARCH_X86 || CPUINFO_ARCH_X86_64
  const int least = cpuinfo_has_x86_sse2();
#elif CPUINFO_ARCH_ARM64
  const int least = cpuinfo_has_arm_neon();
#else
  const int least = 1;
#endif
  printf("cpuinfo: %u cores, %s\n", (unsigned)cpuinfo_get_cores_count(), cpuinfo_get_package(0)->name);
  cpuinfo_deinitialize();
  return !(least && cpuinfo_get_cores_count() > 0);
}
