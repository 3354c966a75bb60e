// Products of matrices in memory.
#pragma once

#include <cstddef>

namespace slipway::lean {

// A product c = a b: a is m x k, b is k x n, or n x k when it is transposed. All are in row-major order.
struct MatrixSizes {
  std::size_t m, k, n;
  bool transposed;
};

// c = a b, or c += a b, of float, double or int64. Floats are added up in depths of some hundreds.
template <typename T>
void multiply(const T* a, const T* b, const MatrixSizes& sizes, bool add, T* c);

// Rows and columns that one tile computes, and the functions for 1 to `rows` rows; as matrix_tile().
template <typename T>
struct MatrixTiles {
  using Function = void (*)(const T* a, std::size_t stride, const T* panel, std::size_t depth, T* c,
                            std::size_t c_stride, std::size_t columns);
  std::size_t rows;
  std::size_t columns;
  const Function* functions;
};

// For 64-bit x86 with AVX2 and FMA.
extern const MatrixTiles<float> kMatrixTilesForAvx2;

// Rows of `a` (`stride` elements apart) times a panel of `depth` rows of Vectors vectors of Bytes bytes,
// added to `columns` columns of as many rows of `c`. To be inlined: the function around it decides on the
// instructions.
template <typename T, std::size_t Bytes, std::size_t Rows, std::size_t Vectors>
[[gnu::always_inline]] inline void matrix_tile(const T* a, std::size_t stride, const T* panel,
                                               std::size_t depth, T* c, std::size_t c_stride,
                                               std::size_t columns) {
  using Vector [[gnu::vector_size(Bytes)]] = T;
  constexpr std::size_t kLanes = Bytes / sizeof(T);
  constexpr std::size_t kColumns = kLanes * Vectors;
  Vector sums[Rows][Vectors] = {};
  for (std::size_t l = 0; l < depth; ++l) {
    Vector row[Vectors];
    __builtin_memcpy(row, panel + l * kColumns, sizeof(row));
    for (std::size_t i = 0; i < Rows; ++i) {
      const T factor = a[i * stride + l];
      for (std::size_t v = 0; v < Vectors; ++v) {
        sums[i][v] += factor * row[v];
      }
    }
  }
  for (std::size_t i = 0; i < Rows; ++i) {
    T* to = c + i * c_stride;
    if (columns == kColumns) {
      Vector before[Vectors];
      __builtin_memcpy(before, to, sizeof(before));
      for (std::size_t v = 0; v < Vectors; ++v) {
        before[v] += sums[i][v];
      }
      __builtin_memcpy(to, before, sizeof(before));
      continue;
    }
    T found[kColumns];
    __builtin_memcpy(found, sums[i], sizeof(found));
    for (std::size_t j = 0; j < columns; ++j) {
      to[j] += found[j];
    }
  }
}

}  // namespace slipway::lean
