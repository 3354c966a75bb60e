#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "numbers.h"

namespace proof {

// How one row (or one image) of float activations is made 8-bit at run time: real = (q - zero_point) / scale.
struct RowQuantization {
  float scale = 1;
  int zero_point = 0;
};

// Asymmetric, as XNNPACK and KleidiAI choose it: zero is representable, the row's extremes span -128 to 127,
// and the zero point comes from whichever end has the smaller error. In float, as they compute it.
RowQuantization ChooseQuantization(const float* row, std::size_t count);

// q for one value.
int Quantize(float value, const RowQuantization& how);

// A row whose quantization does not depend on how an implementation rounds: no element (and no zero point)
// lies within 1/64 of the middle between two integers. So the reference can ask for exactly the same
// integers.
std::vector<float> QuantizableRow(Random* random, std::size_t count, float low, float high);

// 4-bit weights of one row, two a byte, the even one in the low bits, as they lie in memory. With zero point
// 8 the stored number is weight + 8, with 0 it is the weight's two's complement. The count is even.
void PackInt4(const int* weights, std::size_t count, int zero_point, std::vector<std::uint8_t>* packed);

}  // namespace proof
