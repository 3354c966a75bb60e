#include <cstdint>

#include "runner/roofline/roofline_vector.h"

#if defined(__i386__) || defined(__x86_64__)
#include <cpuid.h>
#endif

namespace slipway {

#if defined(__i386__) || defined(__x86_64__)

namespace {

// Intel's manual, volume 1, 15.2: both the processor and the system must have the registers.
constexpr unsigned kXsave = 1U << 27;
constexpr unsigned kFma = 1U << 12;
constexpr unsigned kAvx2 = 1U << 5;
constexpr unsigned kAvx512f = 1U << 16;
constexpr unsigned kSavesAvx = 0x6;
constexpr unsigned kSavesAvx512 = 0xe6;

// A function of its own: the check of instructions knows it by its name.
__attribute__((noinline)) unsigned saved_registers() {
  unsigned low = 0;
  unsigned high = 0;
  asm volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));  // xgetbv
  return low;
}

struct WideVectors {
  bool avx2 = false;
  bool avx512f = false;
};

WideVectors wide_vectors() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kXsave) == 0 || (c & kFma) == 0) {
    return {};
  }
  const unsigned saved = saved_registers();
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (saved & kSavesAvx) != kSavesAvx || (b & kAvx2) == 0) {
    return {};
  }
  return {true, (b & kAvx512f) != 0 && (saved & kSavesAvx512) == kSavesAvx512};
}

}  // namespace

#endif

const RooflineLoops& best_roofline_loops() {
#if defined(__i386__) || defined(__x86_64__)
  const WideVectors has = wide_vectors();
  if (has.avx512f) {
    return avx512f::kRoofline;
  }
  if (has.avx2) {
    return avx2::kRoofline;
  }
#endif
  return ON(kLoops);
}

}  // namespace slipway
