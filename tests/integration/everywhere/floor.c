/* Compiled with the target's own flags: it must see no more than the floor of the instruction set. */
#if defined(__arm__)
#if __ARM_ARCH == 6 && defined(__ARM_NEON)
#error "ARMv6 has no NEON"
#endif
#if __ARM_ARCH > 7 || defined(__ARM_FEATURE_DOTPROD)
#error "more than ARMv7"
#endif
#if !defined(__ARM_PCS_VFP)
#error "no hard float"
#endif
#endif
#if defined(__aarch64__) && (defined(__ARM_FEATURE_DOTPROD) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC))
#error "more than ARMv8.0"
#endif
#if (defined(__i386__) || defined(__x86_64__)) && (defined(__SSE3__) || !defined(__SSE2__))
#error "not the floor of x86"
#endif

double floor_mean(const float* values, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  return count ? sum / count : 0;
}
