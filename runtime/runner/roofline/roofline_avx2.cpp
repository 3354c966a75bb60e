#include <immintrin.h>

#include <cstddef>

#include "runner/roofline/roofline_loops.h"

#define ON(name) roofline_##name##_on_avx2

namespace slipway::avx2 {
namespace {

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

}  // namespace

#include "runner/roofline/roofline_vector.h"

const RooflineLoops kRoofline = ON(kLoops);

}  // namespace slipway::avx2
