// Our transpositions, of every size that a square of vectors leaves over.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "lean/xnnpack/own_kernels.h"

namespace slipway::lean {
namespace {

// `height` rows of `width` elements, each row a few bytes longer than it must be, become columns.
void check_transposed(Transpose kernel, std::size_t size, std::size_t width, std::size_t height,
                      std::size_t apart) {
  const std::size_t input_stride = (width + 3) * size;
  const std::size_t output_stride = (height + apart) * size;
  std::vector<std::uint8_t> input(height * input_stride + 64);
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
  }
  std::vector<std::uint8_t> expected(width * output_stride, 0xee);
  std::vector<std::uint8_t> found = expected;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      std::memcpy(&expected[x * output_stride + y * size], &input[y * input_stride + x * size], size);
    }
  }
  kernel(input.data(), found.data(), input_stride, output_stride, width, height);
  if (found != expected) {
    FAILED(std::to_string(height) + " rows of " + std::to_string(width) + " elements of " +
           std::to_string(size) + " bytes");
  }
}

TEST("transpositions leave no tail out") {
  const TileSet* ours = float_tiles();
  for (std::size_t width = 1; ours != nullptr && width <= 70; ++width) {
    for (const std::size_t log2_size : {0U, 1U, 2U}) {
      check_transposed(ours->interleave[log2_size], std::size_t{1} << log2_size, width, 3, 0);
    }
    for (std::size_t height = 1; height <= 35; ++height) {
      check_transposed(ours->transpose, sizeof(float), width, height, width % 2);
    }
  }
}

}  // namespace
}  // namespace slipway::lean
