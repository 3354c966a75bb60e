// Prints the features of the CPU that it runs on, by the names of Linux's /proc/cpuinfo, on one line.
//
// On Arm that is the line of /proc/cpuinfo itself: QEMU shows a program the CPU that it models. On x86 QEMU shows
// the host's file, so the CPU is asked.

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

typedef struct {
  const char* name;
  unsigned leaf;  // with subleaf 0
  int reg;        // 0 to 3: eax, ebx, ecx, edx
  int bit;
} Feature;

// Intel's manual, volume 2, "CPUID"; names as in Linux's arch/x86/include/asm/cpufeatures.h.
static const Feature kFeatures[] = {
    {"cmov", 1, 3, 15},       {"mmx", 1, 3, 23},       {"sse", 1, 3, 25},        {"sse2", 1, 3, 26},
    {"pni", 1, 2, 0},         {"ssse3", 1, 2, 9},      {"fma", 1, 2, 12},        {"sse4_1", 1, 2, 19},
    {"sse4_2", 1, 2, 20},     {"popcnt", 1, 2, 23},    {"avx", 1, 2, 28},        {"f16c", 1, 2, 29},
    {"bmi1", 7, 1, 3},        {"avx2", 7, 1, 5},       {"bmi2", 7, 1, 8},        {"avx512f", 7, 1, 16},
    {"avx512dq", 7, 1, 17},   {"avx512bw", 7, 1, 30},  {"avx512vl", 7, 1, 31},   {"avx512_vnni", 7, 2, 11},
};

int main(void) {
  for (size_t i = 0; i < sizeof kFeatures / sizeof kFeatures[0]; ++i) {
    unsigned regs[4] = {0};
    const Feature* f = &kFeatures[i];
    if (__get_cpuid_count(f->leaf, 0, &regs[0], &regs[1], &regs[2], &regs[3]) && (regs[f->reg] >> f->bit & 1u)) {
      printf("%s ", f->name);
    }
  }
  puts("");
  return 0;
}
#else
int main(void) {
  FILE* file = fopen("/proc/cpuinfo", "r");
  if (file == NULL) {
    return 1;
  }
  char line[4096];
  while (fgets(line, sizeof line, file) != NULL) {
    const char* colon = strchr(line, ':');
    if (strncmp(line, "Features", 8) == 0 && colon != NULL) {
      fputs(colon + 1, stdout);
      return 0;
    }
  }
  return 1;
}
#endif
