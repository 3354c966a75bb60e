#include "runner/roofline/roofline_loops.h"

#if defined(__i386__) || defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include <cstddef>
#include <cstdint>

#define ON(name) roofline_##name##_base

namespace slipway {
namespace {

#if defined(__SSE2__)

struct Vector {
  using Type = __m128;
  static constexpr const char* kFeature = "sse2";
  static constexpr std::size_t kLanes = 4;
#if defined(__x86_64__)
  static constexpr std::size_t kSums = 14;
#else
  static constexpr std::size_t kSums = 7;
#endif
  static Type broadcast(float value) { return _mm_set1_ps(value); }
  static Type load(const float* from) { return _mm_load_ps(from); }
  static void store(float* to, Type value) { _mm_store_ps(to, value); }
  static Type add(Type a, Type b) { return _mm_add_ps(a, b); }
  // The product has the sum in it: the compiler would take one of constants out of the loop.
  static void multiply_add(Type* sum, Type one) { *sum = _mm_add_ps(_mm_mul_ps(*sum, one), one); }
  static void prefetch(const float*) {}
};

#elif defined(__ARM_NEON)

struct Vector {
  using Type = float32x4_t;
  static constexpr std::size_t kLanes = 4;
  static Type broadcast(float value) { return vdupq_n_f32(value); }
  static Type load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, Type value) { vst1q_f32(to, value); }
  static Type add(Type a, Type b) { return vaddq_f32(a, b); }
  static void prefetch(const float*) {}
#if defined(__aarch64__)
  static constexpr const char* kFeature = "asimd";
  static constexpr std::size_t kSums = 24;
  static void multiply_add(Type* sum, Type one) { *sum = vfmaq_f32(*sum, one, one); }
#else
  static constexpr const char* kFeature = "neon";
  static constexpr std::size_t kSums = 12;
  // For vmlaq_f32 the compiler takes the product out of the loop and leaves an addition.
  static void multiply_add(Type* sum, Type one) {
    asm("vmla.f32 %q0, %q1, %q1" : "+w"(*sum) : "w"(one));  // NOLINT(hicpp-no-assembler)
  }
#endif
};

#else

// One number at a time.
struct Vector {
  using Type = float;
  static constexpr std::size_t kLanes = 1;
  static constexpr std::size_t kSums = 12;
  static Type broadcast(float value) { return value; }
  static Type load(const float* from) { return *from; }
  static void store(float* to, Type value) { *to = value; }
  static Type add(Type a, Type b) { return a + b; }
#if defined(__arm__) && defined(__VFP_FP__) && !defined(__SOFTFP__)
  static constexpr const char* kFeature = "vfp";
  static void multiply_add(Type* sum, Type one) {
    asm("vmla.f32 %0, %1, %1" : "+t"(*sum) : "t"(one));  // NOLINT(hicpp-no-assembler)
  }
  // An ARM1176 loads nothing ahead by itself: its lines have 32 bytes.
  static void prefetch(const float* from) { __builtin_prefetch(from + 32); }
#else
  static constexpr const char* kFeature = "scalar";
  static void multiply_add(Type* sum, Type one) { *sum = *sum * one + one; }
  static void prefetch(const float*) {}
#endif
};

#endif

#if defined(__i386__) || defined(__x86_64__)

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

#endif

}  // namespace

#include "runner/roofline/roofline_vector.h"

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
