#include <kai/ukernels/matmul/pack/kai_lhs_quant_pack_qai8dxp_f32.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// Quantizes a row of 32 numbers to 8 bits and reads it back: no number may be off by more than a step. The packed row
// has the 8-bit values, then the negated zero point (int32) and the size of a step (float).
int main(void) {
  float row[32];
  for (int i = 0; i < 32; i++) {
    row[i] = 0.37f * (float)i - 5.0f;
  }
  unsigned char packed[64] = {0};
  const size_t size = kai_get_lhs_packed_size_lhs_quant_pack_qai8dxp_f32(1, 32, 1, 8, 1);
  if (size != 32 + sizeof(int32_t) + sizeof(float)) {
    printf("kleidiai: a packed row has %zu bytes\n", size);
    return 1;
  }
  kai_run_lhs_quant_pack_qai8dxp_f32(1, 32, 1, 8, 1, 0, row, sizeof row, packed);
  int32_t offset;
  float step;
  memcpy(&offset, packed + 32, sizeof offset);
  memcpy(&step, packed + 32 + sizeof offset, sizeof step);
  int wrong = !(step > 0);
  for (int i = 0; i < 32; i++) {
    wrong += !(fabsf((float)((int8_t)packed[i] + offset) * step - row[i]) <= step);
  }
  printf("kleidiai: 32 numbers quantized, %d wrong\n", wrong);
  return wrong != 0;
}
