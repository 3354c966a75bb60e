// Products of matrices in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipway::lean {

// A product a b: a is m x k, c is m x n, and b is k x n, or n x k when it is transposed; all in row-major
// order.
struct MatrixSizes {
  std::size_t m, k, n;
  bool transposed;
};

// c = a b, or c += a b. Floats are added up in depths of some hundreds.
void multiply(const float* a, const float* b, const MatrixSizes& sizes, bool add, float* c);
void multiply(const double* a, const double* b, const MatrixSizes& sizes, bool add, double* c);
void multiply(const std::int64_t* a, const std::int64_t* b, const MatrixSizes& sizes, bool add,
              std::int64_t* c);

}  // namespace slipway::lean
