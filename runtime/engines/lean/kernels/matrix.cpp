#include "lean/kernels/matrix.h"

#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "lean/kernels/sums.h"

namespace slipway::lean {
namespace {

// Elements of a panel's columns: a panel of floats stays in the nearest cache.
constexpr std::size_t kDepth = 384;
// Fewer rows than this are not worth packing what they are multiplied with.
constexpr std::size_t kFewRows = 4;

template <typename T, std::size_t Rows>
void plain_tile(const T* a, std::size_t stride, const T* panel, std::size_t depth, T* c, std::size_t c_stride,
                std::size_t columns) {
  matrix_tile<T, 16, Rows, 2>(a, stride, panel, depth, c, c_stride, columns);
}

template <typename T>
MatrixTiles<T> plain_tiles() {
  static constexpr typename MatrixTiles<T>::Function kPlain[] = {plain_tile<T, 1>, plain_tile<T, 2>,
                                                                 plain_tile<T, 3>, plain_tile<T, 4>};
  return {4, 2 * 16 / sizeof(T), kPlain};
}

template <typename T>
MatrixTiles<T> tiles() {
#if XNN_ARCH_X86_64
  if constexpr (std::is_same_v<T, float>) {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3) {
      return kMatrixTilesForAvx2;
    }
  }
#endif
  return plain_tiles<T>();
}

// `depth` rows from `first` on and some columns of b, one row after the other; zeros where there are too few
// columns.
template <typename T>
void pack(const T* b, const MatrixSizes& sizes, std::size_t first, std::size_t depth, std::size_t column,
          std::size_t columns, std::size_t width, T* panel) {
  if (columns != width) {
    std::fill_n(panel, depth * width, T{});
  }
  if (sizes.transposed) {
    for (std::size_t j = 0; j < columns; ++j) {
      const T* from = b + (column + j) * sizes.k + first;
      for (std::size_t l = 0; l < depth; ++l) {
        panel[l * width + j] = from[l];
      }
    }
    return;
  }
  for (std::size_t l = 0; l < depth; ++l) {
    std::copy_n(b + (first + l) * sizes.n + column, columns, panel + l * width);
  }
}

// Row by row, as b lies.
template <typename T>
void multiply_rows(const T* a, const T* b, const MatrixSizes& sizes, T* c) {
  const std::size_t k = sizes.k;
  for (std::size_t i = 0; i < sizes.m; ++i) {
    const T* row = a + i * k;
    T* target = c + i * sizes.n;
    for (std::size_t j = 0; sizes.transposed && j < sizes.n; ++j) {
      const T* column = b + j * k;
      target[j] += sum_of<T>(k, [&](std::size_t l) { return row[l] * column[l]; });
    }
    for (std::size_t l = 0; !sizes.transposed && l < k; ++l) {
      const T factor = row[l];
      const T* other = b + l * sizes.n;
      for (std::size_t j = 0; j < sizes.n; ++j) {
        target[j] += factor * other[j];
      }
    }
  }
}

template <typename T>
void multiply_tiles(const T* a, const T* b, const MatrixSizes& sizes, T* c) {
  const MatrixTiles<T> by = tiles<T>();
  std::vector<T> panel(std::min(kDepth, sizes.k) * by.columns);
  for (std::size_t first = 0; first < sizes.k; first += kDepth) {
    const std::size_t depth = std::min(kDepth, sizes.k - first);
    for (std::size_t column = 0; column < sizes.n; column += by.columns) {
      const std::size_t columns = std::min(by.columns, sizes.n - column);
      pack(b, sizes, first, depth, column, columns, by.columns, panel.data());
      for (std::size_t row = 0; row < sizes.m; row += by.rows) {
        const std::size_t rows = std::min(by.rows, sizes.m - row);
        by.functions[rows - 1](a + row * sizes.k + first, sizes.k, panel.data(), depth,
                               c + row * sizes.n + column, sizes.n, columns);
      }
    }
  }
}

template <typename T>
void multiply_floats(const T* a, const T* b, const MatrixSizes& sizes, bool add, T* c) {
  if (!add) {
    std::fill_n(c, sizes.m * sizes.n, T{});
  }
  if (sizes.m < kFewRows) {
    multiply_rows(a, b, sizes, c);
  } else {
    multiply_tiles(a, b, sizes, c);
  }
}

}  // namespace

void multiply(const float* a, const float* b, const MatrixSizes& sizes, bool add, float* c) {
  multiply_floats(a, b, sizes, add, c);
}

void multiply(const double* a, const double* b, const MatrixSizes& sizes, bool add, double* c) {
  multiply_floats(a, b, sizes, add, c);
}

void multiply(const std::int64_t* a, const std::int64_t* b, const MatrixSizes& sizes, bool add,
              std::int64_t* c) {
  if (!add) {
    std::fill_n(c, sizes.m * sizes.n, std::int64_t{0});
  }
  multiply_rows(a, b, sizes, c);
}

}  // namespace slipway::lean
