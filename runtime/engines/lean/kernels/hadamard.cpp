// Hadamard transforms, which rotate what a language model quantizes.
#include <cmath>
#include <vector>

#include "lean/kernels/kernel.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// The rows 0, 7, 14 and 21 of a Hadamard matrix of 28 rows. Each of its 16 blocks of 7x7 is circulant.
constexpr char kHadamard28[4][29] = {"+--------++++--+-++-+-++--++", "++----++------+--++---+-++-+",
                                     "+-+--+--++--+++------++----+", "+--++--+-+--+---++++-+------"};

// A row of 2^n or 28 2^n numbers times a Hadamard matrix, divided by the root of 2^n. In double: sums of
// thousands of numbers.
void hadamard(double* row, std::size_t count, std::size_t power) {
  for (std::size_t half = 1; half < power; half *= 2) {
    for (std::size_t i = 0; i < count; i += (i + 1) % half == 0 ? half + 1 : 1) {
      const double sum = row[i] + row[i + half];
      row[i + half] = row[i] - row[i + half];
      row[i] = sum;
    }
  }
  for (std::size_t at = 0; at < power && power != count; ++at) {
    double sums[28] = {};
    for (std::size_t i = 0; i < 28; ++i) {
      for (std::size_t j = 0; j < 28; ++j) {
        const char sign = kHadamard28[i / 7][j / 7 * 7 + (j % 7 + 7 - i % 7) % 7];
        sums[j] += sign == '+' ? row[i * power + at] : -row[i * power + at];
      }
    }
    for (std::size_t j = 0; j < 28; ++j) {
      row[j * power + at] = sums[j];
    }
  }
  const double scale = 1 / std::sqrt(static_cast<double>(power));
  for (std::size_t i = 0; i < count; ++i) {
    row[i] *= scale;
  }
}

Status fast_hadamard_transform(const TensorView& in, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  const std::size_t count = in.rank == 0 ? 0 : static_cast<std::size_t>(in.sizes[in.rank - 1U]);
  const std::size_t power = count % 28 == 0 ? count / 28 : count;
  if ((power & (power - 1)) != 0 || count == 0 || !is_floating(in.dtype) || in.dtype != out.dtype) {
    return mismatch("there is no Hadamard transform of " + to_text(in.shape()) + " of " + name_of(in.dtype) +
                    ": rows are 2^n or 28 2^n numbers");
  }
  std::vector<double> elements = elements_of<double>(in);
  for (std::size_t i = 0; i < elements.size(); i += count) {
    hadamard(elements.data() + i, count, power);
  }
  copy(out, operand_of(straightened(out, elements.data()), out));
  return {};
}

// The input itself.
Status fallback(const TensorView& in, TensorView& out) {
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  copy(out, whole(in));
  return {};
}

constexpr KernelEntry kHadamardTable[] = {
    {"llama::fallback.out", typed<fallback>},
    {"llama::fast_hadamard_transform.out", typed<fast_hadamard_transform>},
};

}  // namespace

KernelTable hadamard_kernels() {
  return kHadamardTable;
}

}  // namespace slipway::lean
