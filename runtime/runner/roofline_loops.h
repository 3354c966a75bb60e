// What the roofline measures: two loops for the widest vectors that the including file's flags allow. It is
// compiled with flags that the rest of the program must not have. So ON(name) ends a name with the
// instruction set; and nothing from the standard library's headers but types: the linker might take a
// function of theirs that needs this instruction set for the whole program.
#pragma once

#include <cstddef>

#if defined(__AVX512F__)
#define ON(name) roofline_##name##_on_avx512f
#elif defined(__AVX2__)
#define ON(name) roofline_##name##_on_avx2
#else
#define ON(name) roofline_##name##_base
#endif

namespace slipway {

struct RooflineLoops {
  const char* feature;  // as /proc/cpuinfo names it
  std::size_t sums;     // that one step adds to, each with one multiplication and one addition
  std::size_t block;    // read() takes a multiple of so many numbers
  // Adds 1 * 1 to every sum, `steps` (a multiple of 4, at most 2^24) times, in registers. Returns the sum of
  // all sums: steps * sums, where the processor did all of it.
  double (*multiply_add)(std::size_t steps);
  // The sum of the numbers, which are aligned to 64 bytes.
  double (*read)(const float* from, std::size_t count);
};

namespace avx2 {
extern const RooflineLoops kRoofline;
}
namespace avx512f {
extern const RooflineLoops kRoofline;
}

namespace {

// The width of a register in bytes; and as many sums as it takes to start a multiplication while others are
// under way, and no more than fit into the registers. The constraint is asm's word for such a register.
#if defined(__AVX512F__)
#define SLIPWAY_REGISTER "v"
constexpr char ON(kFeature)[] = "avx512f";
constexpr std::size_t ON(kBytes) = 64;
constexpr std::size_t ON(kSums) = sizeof(void*) == 8 ? 16 : 7;
#elif defined(__AVX2__)
#define SLIPWAY_REGISTER "x"
constexpr char ON(kFeature)[] = "avx2";
constexpr std::size_t ON(kBytes) = 32;
constexpr std::size_t ON(kSums) = sizeof(void*) == 8 ? 12 : 7;
#elif defined(__SSE2__)
#define SLIPWAY_REGISTER "x"
constexpr char ON(kFeature)[] = "sse2";
constexpr std::size_t ON(kBytes) = 16;
constexpr std::size_t ON(kSums) = sizeof(void*) == 8 ? 14 : 7;
#elif defined(__aarch64__)
#define SLIPWAY_REGISTER "w"
constexpr char ON(kFeature)[] = "asimd";
constexpr std::size_t ON(kBytes) = 16;
constexpr std::size_t ON(kSums) = 24;
#elif defined(__ARM_NEON)
constexpr char ON(kFeature)[] = "neon";
constexpr std::size_t ON(kBytes) = 16;
constexpr std::size_t ON(kSums) = 12;
#elif defined(__arm__) && defined(__VFP_FP__) && !defined(__SOFTFP__)
constexpr char ON(kFeature)[] = "vfp";
constexpr std::size_t ON(kBytes) = sizeof(float);
constexpr std::size_t ON(kSums) = 12;
#else
#define SLIPWAY_REGISTER "m"
constexpr char ON(kFeature)[] = "scalar";
constexpr std::size_t ON(kBytes) = sizeof(float);
constexpr std::size_t ON(kSums) = 12;
#endif

constexpr std::size_t ON(kLanes) = ON(kBytes) / sizeof(float);
constexpr std::size_t ON(kReadSums) = ON(kSums) < 8 ? 4 : 8;

// Vectors of GCC's and Clang's; one of a single number is the number.
#if defined(__arm__) && !defined(__ARM_NEON)
using ON(Vector) = float;
#else
typedef float ON(Vector) __attribute__((vector_size(ON(kBytes))));
#endif

// sum + one * one, in one instruction where the processor has it.
inline void ON(add_product)(ON(Vector) * sum, ON(Vector) * one) {
#if defined(__ARM_NEON) && !defined(__aarch64__)
  asm("vmla.f32 %q0, %q1, %q1" : "+w"(*sum) : "w"(*one));  // NOLINT(hicpp-no-assembler)
#elif !defined(SLIPWAY_REGISTER)
  asm("vmla.f32 %0, %1, %1" : "+t"(*sum) : "t"(*one));  // NOLINT(hicpp-no-assembler)
#else
  asm volatile("" : "+" SLIPWAY_REGISTER(*one));  // or the compiler would multiply once for all
  *sum += *one * *one;
#endif
}

// A compiler that knew the number could compute the sums ahead.
volatile float ON(g_one) = 1;

inline double ON(total)(ON(Vector) sum) {
  float lanes[ON(kLanes)];
  __builtin_memcpy(lanes, &sum, sizeof lanes);
  double all = 0;
  for (std::size_t i = 0; i < ON(kLanes); ++i) {
    all += static_cast<double>(lanes[i]);
  }
  return all;
}

double ON(multiply_add)(std::size_t steps) {
  ON(Vector) sums[ON(kSums)] = {};
  ON(Vector) one = ON(Vector){} + ON(g_one);
  for (std::size_t step = 0; step < steps; step += 4) {
#pragma GCC unroll 4
    for (std::size_t repeat = 0; repeat < 4; ++repeat) {
#pragma GCC unroll 32
      for (std::size_t i = 0; i < ON(kSums); ++i) {
        ON(add_product)(&sums[i], &one);
      }
    }
  }
  double all = 0;
#pragma GCC unroll 32
  for (std::size_t i = 0; i < ON(kSums); ++i) {
    all += ON(total)(sums[i]);
  }
  return all;
}

double ON(read)(const float* from, std::size_t count) {
  ON(Vector) sums[ON(kReadSums)] = {};
  for (const float* end = from + count; from != end; from += ON(kReadSums) * ON(kLanes)) {
#if defined(__arm__) && !defined(__ARM_NEON)
    __builtin_prefetch(from + 32);  // an ARM1176 loads nothing ahead by itself: its lines have 32 bytes
#endif
#pragma GCC unroll 8
    for (std::size_t i = 0; i < ON(kReadSums); ++i) {
      sums[i] += *reinterpret_cast<const ON(Vector)*>(from + i * ON(kLanes));
    }
  }
  double all = 0;
#pragma GCC unroll 32
  for (std::size_t i = 0; i < ON(kReadSums); ++i) {
    all += ON(total)(sums[i]);
  }
  return all;
}

constexpr RooflineLoops ON(kLoops) = {ON(kFeature), ON(kSums) * ON(kLanes), ON(kReadSums) * ON(kLanes),
                                      &ON(multiply_add), &ON(read)};

}  // namespace
}  // namespace slipway
