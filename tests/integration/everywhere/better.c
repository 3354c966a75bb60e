/* Compiled with flags of its own for a better CPU: they must win over the target's. Never called. */
#if defined(__arm__) || defined(__aarch64__)
#include <arm_neon.h>

int32x4_t better_dot(int32x4_t sum, int8x16_t a, int8x16_t b) {
  return vdotq_s32(sum, a, b);
}
#else
#include <immintrin.h>

__m512i better_dot(__m512i sum, __m512i a, __m512i b) {
  return _mm512_dpbusd_epi32(sum, a, b);
}
#endif
