#include <fxdiv.h>
#include <stdint.h>
#include <stdio.h>

// Compares quotients and remainders with the CPU's own, at the ends of the range and around the divisors' multiples.
int main(void) {
  const uint32_t divisors[] = {1, 2, 3, 7, 10, 641, 65536, UINT32_C(0x7FFFFFFF), UINT32_MAX};
  int checked = 0, wrong = 0;
  for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
    const struct fxdiv_divisor_uint32_t divisor = fxdiv_init_uint32_t(divisors[i]);
    const uint32_t numbers[] = {0, 1, divisors[i] - 1, divisors[i], divisors[i] + 1, 1000000007, UINT32_MAX};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      const struct fxdiv_result_uint32_t got = fxdiv_divide_uint32_t(numbers[k], divisor);
      wrong += got.quotient != numbers[k] / divisors[i] || got.remainder != numbers[k] % divisors[i];
      checked++;
    }
  }
  printf("fxdiv: %d divisions, %d wrong\n", checked, wrong);
  return wrong != 0;
}
