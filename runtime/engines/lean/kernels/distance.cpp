// Distances between vectors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lean/kernels/offsets.h"
#include "lean/kernels/tables.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// The norm of a - b: how many differ (p = 0), the largest difference (infinity), or the p-th root of the
// powers' sum.
template <typename T>
T distance(const T* a, const T* b, std::size_t width, double p) {
  T total{};
  const auto power = static_cast<T>(p);
  for (std::size_t i = 0; i < width; ++i) {
    const T apart = std::abs(a[i] - b[i]);
    if (p == 0) {
      total += apart != T(0) ? T(1) : T(0);
    } else if (p == 1) {
      total += apart;
    } else if (p == 2) {
      total += apart * apart;
    } else if (p == std::numeric_limits<double>::infinity()) {
      total = apart > total || apart != apart ? apart : total;
    } else {
      total += std::pow(apart, power);
    }
  }
  if (p == 2) {
    return std::sqrt(total);
  }
  return p == 0 || p == 1 || p == std::numeric_limits<double>::infinity() ? total
                                                                          : std::pow(total, T(1) / power);
}

// aten::_pdist_forward.out(Tensor self, float p=2, *, Tensor(a!) out): between all pairs of rows.
Status pdist(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const double p = arguments.real(1);
  TensorView& out = arguments.tensor(2);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
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

// aten::_cdist_forward.out(Tensor x1, Tensor x2, float p, int? compute_mode, *, Tensor(a!) out): between each
// row of x1 [..., P, M] and each of x2 [..., R, M]; what is before is broadcast.
Status cdist(Arguments& arguments) {
  const TensorView& a = arguments.tensor(0);
  const TensorView& b = arguments.tensor(1);
  const double p = arguments.real(2);
  TensorView& out = arguments.tensor(4);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  if (a.rank < 2 || b.rank < 2 || a.sizes[a.rank - 1U] != b.sizes[b.rank - 1U] || !(p >= 0)) {
    return mismatch("no distances between " + to_text(a.shape()) + " and " + to_text(b.shape()));
  }
  TensorView first = a;
  TensorView second = b;
  first.rank = static_cast<std::uint8_t>(a.rank - 2U);
  second.rank = static_cast<std::uint8_t>(b.rank - 2U);
  Shape batch;
  SLIPWAY_RETURN_IF_ERROR(broadcast_shape(first, second, &batch));
  Shape shape = batch;
  shape.push_back(a.sizes[a.rank - 2U]);
  shape.push_back(b.sizes[b.rank - 2U]);
  const Status resized = resize(&out, shape);
  if (!resized.ok() || out.count() == 0) {
    return resized;
  }
  const auto rows = static_cast<std::size_t>(shape[batch.size()]);
  const auto columns = static_cast<std::size_t>(shape[batch.size() + 1]);
  const auto width = static_cast<std::size_t>(a.sizes[a.rank - 1U]);
  // Which matrix of each goes with which of the result.
  TensorView both;
  both.rank = static_cast<std::uint8_t>(batch.size());
  std::copy(batch.begin(), batch.end(), both.sizes.begin());
  for (TensorView* view : {&first, &second}) {
    for (std::uint8_t i = 0; i < view->rank; ++i) {
      view->order[i] = i;
    }
  }
  const auto first_steps = operand_of(first, both).steps;
  const auto second_steps = operand_of(second, both).steps;
  return in_floats(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> left = elements_of<T>(a);
    const std::vector<T> right = elements_of<T>(b);
    std::vector<T> result(out.count());
    std::size_t to = 0;
    for (std::size_t n = 0, count = both.count(); n < count; ++n) {
      const T* x = left.data() + static_cast<std::size_t>(offset_of(n, batch, first_steps)) * rows * width;
      const T* y =
          right.data() + static_cast<std::size_t>(offset_of(n, batch, second_steps)) * columns * width;
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t k = 0; k < columns; ++k) {
          result[to++] = distance(x + i * width, y + k * width, width, p);
        }
      }
    }
    copy(out, operand_of(straightened(out, result.data()), out));
    return Status();
  });
}

constexpr KernelEntry kDistanceTable[] = {
    {"aten::_cdist_forward.out", cdist, 5},
    {"aten::_pdist_forward.out", pdist, 3},
};

}  // namespace

KernelTable distance_kernels() {
  return kDistanceTable;
}

}  // namespace slipway::lean
