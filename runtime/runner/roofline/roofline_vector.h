// The two loops of roofline_loops.h for the widest vectors that the including file's flags allow. ON(name)
// ends a name with the instruction set; and nothing from the standard library's headers but types: the linker
// might take a function of theirs that needs this instruction set for the whole program.
#pragma once

#if defined(__i386__) || defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include <cstddef>

#include "runner/roofline/roofline_loops.h"

#if defined(__AVX512F__)
#define ON(name) roofline_##name##_on_avx512f
#elif defined(__AVX2__)
#define ON(name) roofline_##name##_on_avx2
#else
#define ON(name) roofline_##name##_base
#endif

namespace slipway {
namespace {

#if defined(__AVX512F__)

struct Vector {
  using Type = __m512;
  static constexpr const char* kFeature = "avx512f";
  static constexpr std::size_t kLanes = 16;
#if defined(__x86_64__)
  static constexpr std::size_t kSums = 16;
#else
  static constexpr std::size_t kSums = 7;
#endif
  static Type broadcast(float value) { return _mm512_set1_ps(value); }
  static Type load(const float* from) { return _mm512_load_ps(from); }
  static void store(float* to, Type value) { _mm512_store_ps(to, value); }
  static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static void multiply_add(Type* sum, Type one) { *sum = _mm512_fmadd_ps(one, one, *sum); }
  static void prefetch(const float*) {}
};

#elif defined(__AVX2__)

struct Vector {
  using Type = __m256;
  static constexpr const char* kFeature = "avx2";
  static constexpr std::size_t kLanes = 8;
#if defined(__x86_64__)
  static constexpr std::size_t kSums = 12;
#else
  static constexpr std::size_t kSums = 7;
#endif
  static Type broadcast(float value) { return _mm256_set1_ps(value); }
  static Type load(const float* from) { return _mm256_load_ps(from); }
  static void store(float* to, Type value) { _mm256_store_ps(to, value); }
  static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
  static void multiply_add(Type* sum, Type one) { *sum = _mm256_fmadd_ps(one, one, *sum); }
  static void prefetch(const float*) {}
};

#elif defined(__SSE2__)

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

// A compiler that knew the numbers could compute the sums ahead.
volatile float ON(g_zero) = 0;
volatile float ON(g_one) = 1;

double ON(total)(const float* lanes, std::size_t count) {
  double all = 0;
  for (std::size_t i = 0; i < count; ++i) {
    all += static_cast<double>(lanes[i]);
  }
  return all;
}

// As many sums as it takes to start a multiplication while others are under way, and no more than fit into
// the registers.
double ON(multiply_add)(std::size_t steps) {
  typename Vector::Type sums[Vector::kSums];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Vector::kSums; ++i) {
    sums[i] = Vector::broadcast(ON(g_zero));
  }
  const typename Vector::Type one = Vector::broadcast(ON(g_one));
  for (std::size_t step = 0; step < steps; step += kRooflineUnroll) {
#pragma GCC unroll 4
    for (std::size_t repeat = 0; repeat < kRooflineUnroll; ++repeat) {
#pragma GCC unroll 32
      for (std::size_t i = 0; i < Vector::kSums; ++i) {
        Vector::multiply_add(&sums[i], one);
      }
    }
  }
  alignas(64) float lanes[Vector::kSums * Vector::kLanes];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Vector::kSums; ++i) {
    Vector::store(lanes + i * Vector::kLanes, sums[i]);
  }
  return ON(total)(lanes, Vector::kSums * Vector::kLanes);
}

double ON(read)(const float* from, std::size_t count) {
  constexpr std::size_t kSums = Vector::kSums < 8 ? 4 : 8;
  typename Vector::Type sums[kSums];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kSums; ++i) {
    sums[i] = Vector::broadcast(ON(g_zero));
  }
  for (const float* end = from + count; from != end; from += kSums * Vector::kLanes) {
    Vector::prefetch(from);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kSums; ++i) {
      sums[i] = Vector::add(sums[i], Vector::load(from + i * Vector::kLanes));
    }
  }
  alignas(64) float lanes[kSums * Vector::kLanes];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < kSums; ++i) {
    Vector::store(lanes + i * Vector::kLanes, sums[i]);
  }
  return ON(total)(lanes, kSums * Vector::kLanes);
}

constexpr RooflineLoops ON(kLoops) = {Vector::kFeature, Vector::kSums * Vector::kLanes,
                                      (Vector::kSums < 8 ? 4 : 8) * Vector::kLanes, &ON(multiply_add),
                                      &ON(read)};

}  // namespace
}  // namespace slipway
