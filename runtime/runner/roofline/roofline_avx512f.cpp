#include <immintrin.h>

#include <cstddef>

#include "runner/roofline/roofline_loops.h"

#define ON(name) roofline_##name##_on_avx512f

namespace slipway::avx512f {
namespace {

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

}  // namespace

#include "runner/roofline/roofline_vector.h"

const RooflineLoops kRoofline = ON(kLoops);

}  // namespace slipway::avx512f
