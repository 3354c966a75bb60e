// Products of matrices, and distances between vectors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "lean/kernels/kernel.h"
#include "lean/kernels/matrix.h"
#include "lean/kernels/volume.h"

#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

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
MatrixTiles<T> tiles() {
#if XNN_ARCH_X86_64
  if constexpr (std::is_same_v<T, float>) {
    const xnn_hardware_config* hardware = xnn_init_hardware_config();
    if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3) {
      return kMatrixTilesForAvx2;
    }
  }
#endif
  static constexpr typename MatrixTiles<T>::Function kPlain[] = {plain_tile<T, 1>, plain_tile<T, 2>,
                                                                 plain_tile<T, 3>, plain_tile<T, 4>};
  return {4, 2 * 16 / sizeof(T), kPlain};
}

// `depth` rows from `first` on and some columns of b, row by row, with zeros behind the last column.
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

}  // namespace

template <typename T>
void multiply(const T* a, const T* b, const MatrixSizes& sizes, bool add, T* c) {
  if (!add) {
    std::fill_n(c, sizes.m * sizes.n, T{});
  }
  if constexpr (!std::is_integral_v<T>) {
    if (sizes.m >= kFewRows) {
      return multiply_tiles(a, b, sizes, c);
    }
  }
  multiply_rows(a, b, sizes, c);
}

template void multiply(const float*, const float*, const MatrixSizes&, bool, float*);

namespace {

Status cannot_multiply(const TensorView& a, const TensorView& b) {
  return mismatch("cannot multiply " + to_text(a.shape()) + " with " + to_text(b.shape()));
}

// A tensor that a product is added to: beta * start + alpha * product.
struct Start {
  const TensorView* tensor = nullptr;
  Number beta{1, 1, true, false};
  Number alpha{1, 1, true, false};

  bool is_scaled() const { return beta.as<double>() != 1 || alpha.as<double>() != 1; }
};

// Batches of products: a is [..., m, k], b [..., k, n] with as many matrices, or [n, k] if it is transposed.
Status product(const TensorView& a, const TensorView& b, bool transposed, const Start& start,
               std::size_t batch, TensorView& out) {
  if (start.tensor != nullptr) {
    SLIPWAY_RETURN_IF_ERROR(goes_into(*start.tensor, out.shape()));
  }
  if (out.count() == 0) {
    return {};  // matrices without elements can be any many
  }
  const auto k = static_cast<std::size_t>(a.sizes[a.rank - 1U]);
  const auto n = static_cast<std::size_t>(b.sizes[b.rank - (transposed ? 2U : 1U)]);
  const std::size_t m = out.count() / batch / n;
  const bool onto = start.tensor != nullptr && !start.is_scaled();
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    const Values<T> left(a);
    const Values<T> right(b);
    Values<T> result = start.is_scaled() ? Values<T>::zeros(out) : Values<T>(out, {&left, &right});
    if (onto) {
      copy(straightened(out, result.data()), operand_of(*start.tensor, out));
    }
    for (std::size_t i = 0; i < batch; ++i) {
      multiply(left.data() + i * m * k, right.data() + i * k * n, {m, k, n, transposed}, onto,
               result.data() + i * m * n);
    }
    if (start.is_scaled()) {
      const TensorView products = straightened(out, result.data());
      map<In::kWide>(out, std::array<Operand, 2>{operand_of(*start.tensor, out), operand_of(products, out)},
                     out.dtype, [beta = start.beta, alpha = start.alpha](auto x, auto y) {
                       return beta.as<decltype(x)>() * x + alpha.as<decltype(x)>() * y;
                     });
    } else {
      result.put(out);
    }
    return Status();
  });
}

// aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out), aten::bmm.out: as many of each.
template <std::size_t kRank>
Status mm(const TensorView& a, const TensorView& b, TensorView& out) {
  if (a.rank != kRank || b.rank != kRank || a.sizes[kRank - 1] != b.sizes[kRank - 2] ||
      (kRank == 3 && a.sizes[0] != b.sizes[0])) {
    return cannot_multiply(a, b);
  }
  Shape shape = a.shape();
  shape.back() = b.sizes[kRank - 1];
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  return product(a, b, false, {}, kRank == 3 ? static_cast<std::size_t>(a.sizes[0]) : 1, out);
}

Status addmm(const TensorView& self, const TensorView& a, const TensorView& b, Number beta, Number alpha,
             TensorView& out) {
  if (a.rank != 2 || b.rank != 2 || a.sizes[1] != b.sizes[0]) {
    return cannot_multiply(a, b);
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{a.sizes[0], b.sizes[1]}));
  return product(a, b, false, {&self, beta, alpha}, 1, out);
}

Status linear(const TensorView& in, const TensorView& weight, const TensorView* bias, TensorView& out) {
  if (in.rank == 0 || weight.rank != 2 || in.sizes[in.rank - 1U] != weight.sizes[1] ||
      (bias != nullptr && static_cast<std::int64_t>(bias->count()) != weight.sizes[0])) {
    return cannot_multiply(in, weight);
  }
  Shape shape = in.shape();
  shape.back() = weight.sizes[0];
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  return product(in, weight, true, {bias}, 1, out);
}

// The p-norm of a - b. If p is 0: how many elements differ; if it is infinity: the largest difference.
template <typename T>
T distance(const T* a, const T* b, std::size_t width, double p) {
  const auto sum = [&](auto next) {
    T total{};
    for (std::size_t i = 0; i < width; ++i) {
      total = next(total, std::abs(a[i] - b[i]));
    }
    return total;
  };
  if (p == 2) {
    return std::sqrt(sum([](T total, T apart) { return total + apart * apart; }));
  }
  if (p == 1) {
    return sum([](T total, T apart) { return total + apart; });
  }
  if (p == 0) {
    return sum([](T total, T apart) { return total + (apart != T(0) ? T(1) : T(0)); });
  }
  if (p == std::numeric_limits<double>::infinity()) {
    return sum([](T total, T apart) { return apart > total || apart != apart ? apart : total; });
  }
  const auto power = static_cast<T>(p);
  return std::pow(sum([power](T total, T apart) { return total + std::pow(apart, power); }), T(1) / power);
}

// Between all pairs of rows.
Status pdist(const TensorView& in, double p, TensorView& out) {
  // What two of them are multiplied to stays a number: rows without columns can be any many.
  if (in.rank != 2 || in.sizes[0] > INT32_MAX || !(p >= 0)) {
    return mismatch("no distances between the rows of " + to_text(in.shape()));
  }
  const auto rows = static_cast<std::size_t>(in.sizes[0]);
  const auto width = static_cast<std::size_t>(in.sizes[1]);
  SLIPWAY_RETURN_IF_ERROR(resize(&out, Shape{rows == 0 ? 0 : in.sizes[0] * (in.sizes[0] - 1) / 2}));
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> values = elements_of<T>(in);
    std::int64_t to = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t k = i + 1; k < rows; ++k) {
        const T found = distance(values.data() + i * width, values.data() + k * width, width, p);
        store(out.dtype, &found, 1, at(out, to++), 1);
      }
    }
    return Status();
  });
}

// Between each row of x1 [..., P, M] and each of x2 [..., R, M]; what is before is broadcast.
Status cdist(const TensorView& a, const TensorView& b, double p, Unused /*compute_mode*/, TensorView& out) {
  if (a.rank < 2 || b.rank < 2 || a.sizes[a.rank - 1U] != b.sizes[b.rank - 1U] || !(p >= 0)) {
    return mismatch("no distances between " + to_text(a.shape()) + " and " + to_text(b.shape()));
  }
  TensorView first = a;
  TensorView second = b;
  first.rank = static_cast<std::uint8_t>(a.rank - 2U);
  second.rank = static_cast<std::uint8_t>(b.rank - 2U);
  SLIPWAY_TRY(const Shape batch, broadcast_shape({&first, &second}));
  Shape shape = batch;
  shape.push_back(a.sizes[a.rank - 2U]);
  shape.push_back(b.sizes[b.rank - 2U]);
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, shape), out);
  const auto rows = static_cast<std::size_t>(shape[batch.size()]);
  const auto columns = static_cast<std::size_t>(shape[batch.size() + 1]);
  const auto width = static_cast<std::size_t>(a.sizes[a.rank - 1U]);
  // Which matrix of each goes with which of the result.
  const TensorView both = shaped(batch);
  const auto first_steps = operand_of(first.in_rows(nullptr), both).steps;
  const auto second_steps = operand_of(second.in_rows(nullptr), both).steps;
  const Axes axes(batch, {first_steps.data(), second_steps.data()});
  return in_floats(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> left = elements_of<T>(a);
    const std::vector<T> right = elements_of<T>(b);
    std::vector<T> result(out.count());
    auto to = result.begin();
    Walk<2> walk(axes);
    do {
      const T* x = left.data() + static_cast<std::size_t>(walk.offsets[0]) * rows * width;
      const T* y = right.data() + static_cast<std::size_t>(walk.offsets[1]) * columns * width;
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t k = 0; k < columns; ++k) {
          *to++ = distance(x + i * width, y + k * width, width, p);
        }
      }
    } while (walk.next());
    copy(out, operand_of(straightened(out, result.data()), out));
    return Status();
  });
}

// The rows 0, 7, 14 and 21 of a Hadamard matrix of 28 rows. Each of its 16 blocks of 7x7 is circulant.
constexpr char kHadamard28[4][29] = {"+--------++++--+-++-+-++--++", "++----++------+--++---+-++-+",
                                     "+-+--+--++--+++------++----+", "+--++--+-+--+---++++-+------"};

// A row of 2^n or 28 2^n numbers times a Hadamard matrix, over the root of 2^n. Sums are long, so double.
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
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in));
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

}  // namespace

constexpr KernelTable kLinearAlgebraKernels = {
    {"aten::_cdist_forward.out", typed<cdist>},
    {"aten::_pdist_forward.out", typed<pdist>},
    {"aten::addmm.out", typed<addmm>},
    {"aten::bmm.out", typed<mm<3>>},
    {"aten::linear.out", typed<linear>},
    {"aten::mm.out", typed<mm<2>>},
    {"llama::fast_hadamard_transform.out", typed<fast_hadamard_transform>},
};

}  // namespace slipway::lean
