// Products of matrices.
#include <vector>

#include "lean/kernels/tables.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

Status cannot_multiply(const TensorView& a, const TensorView& b) {
  return {Code::kExecution, "cannot multiply " + to_text(a.shape()) + " with " + to_text(b.shape()),
          "check the inputs' shapes against what the program was exported with"};
}

// c (m x n) += a (m x k) times b, which is k x n, or n x k when it is transposed.
template <typename T>
void multiply(const T* a, const T* b, bool transposed, std::size_t m, std::size_t k, std::size_t n, T* c) {
  for (std::size_t i = 0; i < m; ++i) {
    const T* row = a + i * k;
    T* target = c + i * n;
    if (transposed) {
      for (std::size_t j = 0; j < n; ++j) {
        const T* column = b + j * k;
        T total{};
        for (std::size_t l = 0; l < k; ++l) {
          total += row[l] * column[l];
        }
        target[j] += total;
      }
      continue;
    }
    for (std::size_t l = 0; l < k; ++l) {
      const T factor = row[l];
      const T* other = b + l * n;
      for (std::size_t j = 0; j < n; ++j) {
        target[j] += factor * other[j];
      }
    }
  }
}

// Stores T's in row-major order into `out`, whatever its memory order.
template <typename T>
void put(const std::vector<T>& values, TensorView& out) {
  if (values.empty()) {
    return;
  }
  if (out.contiguous()) {
    store(out.dtype, values.data(), values.size(), out.data, 1);
    return;
  }
  TensorView straight = out;
  straight.dtype = std::is_same_v<T, float>    ? DType::kFloat32
                   : std::is_same_v<T, double> ? DType::kFloat64
                                               : DType::kInt64;
  for (std::uint8_t i = 0; i < out.rank; ++i) {
    straight.order[i] = i;
  }
  // const_cast: it is only read.
  straight.data = reinterpret_cast<std::uint8_t*>(const_cast<T*>(values.data()));
  copy(out, operand_of(straight, out));
}

// Batches of products: a is [..., m, k], b [..., k, n] with as many matrices.
Status product(const TensorView& a, const TensorView& b, std::size_t batch, TensorView& out) {
  if (out.count() == 0) {
    return {};  // matrices without elements can be any many
  }
  const auto m = static_cast<std::size_t>(a.sizes[a.rank - 2U]);
  const auto k = static_cast<std::size_t>(a.sizes[a.rank - 1U]);
  const auto n = static_cast<std::size_t>(b.sizes[b.rank - 1U]);
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> left = elements_of<T>(a);
    const std::vector<T> right = elements_of<T>(b);
    std::vector<T> result(batch * m * n);
    for (std::size_t i = 0; i < batch; ++i) {
      multiply(left.data() + i * m * k, right.data() + i * k * n, false, m, k, n, result.data() + i * m * n);
    }
    put(result, out);
    return Status();
  });
}

// aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out)
Status mm(Arguments& arguments) {
  const TensorView& a = arguments.tensor(0);
  const TensorView& b = arguments.tensor(1);
  TensorView& out = arguments.tensor(2);
  if (!arguments.fault().ok() || a.rank != 2 || b.rank != 2 || a.sizes[1] != b.sizes[0]) {
    return cannot_multiply(a, b);
  }
  const Status resized = resize(&out, Shape{a.sizes[0], b.sizes[1]});
  return resized.ok() ? product(a, b, 1, out) : resized;
}

// aten::bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out)
Status bmm(Arguments& arguments) {
  const TensorView& a = arguments.tensor(0);
  const TensorView& b = arguments.tensor(1);
  TensorView& out = arguments.tensor(2);
  if (!arguments.fault().ok() || a.rank != 3 || b.rank != 3 || a.sizes[0] != b.sizes[0] ||
      a.sizes[2] != b.sizes[1]) {
    return cannot_multiply(a, b);
  }
  const Status resized = resize(&out, Shape{a.sizes[0], a.sizes[1], b.sizes[2]});
  return resized.ok() ? product(a, b, static_cast<std::size_t>(a.sizes[0]), out) : resized;
}

// aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out)
Status addmm(Arguments& arguments) {
  const TensorView& self = arguments.tensor(0);
  const TensorView& a = arguments.tensor(1);
  const TensorView& b = arguments.tensor(2);
  const Number beta = arguments.number(3);
  const Number alpha = arguments.number(4);
  TensorView& out = arguments.tensor(5);
  if (!arguments.fault().ok() || a.rank != 2 || b.rank != 2 || a.sizes[1] != b.sizes[0]) {
    return cannot_multiply(a, b);
  }
  Status done = resize(&out, Shape{a.sizes[0], b.sizes[1]});
  Shape shape;
  if (done.ok()) {
    done = broadcast_shape(self, out, &shape);
  }
  if (!done.ok() || shape != out.shape()) {
    return done.ok() ? cannot_multiply(self, out) : done;
  }
  if (out.count() == 0) {
    return {};
  }
  const auto m = static_cast<std::size_t>(a.sizes[0]);
  const auto k = static_cast<std::size_t>(a.sizes[1]);
  const auto n = static_cast<std::size_t>(b.sizes[1]);
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> result(m * n);
    multiply(elements_of<T>(a).data(), elements_of<T>(b).data(), false, m, k, n, result.data());
    TensorView products = out;
    products.dtype = std::is_same_v<T, float>    ? DType::kFloat32
                     : std::is_same_v<T, double> ? DType::kFloat64
                                                 : DType::kInt64;
    for (std::uint8_t i = 0; i < out.rank; ++i) {
      products.order[i] = i;
    }
    products.data = reinterpret_cast<std::uint8_t*>(result.data());
    map<T>(out, std::array<Operand, 2>{operand_of(self, out), operand_of(products, out)},
           [=](const T* const* inputs, T* sum, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               sum[i] = beta.as<T>() * inputs[0][i] + alpha.as<T>() * inputs[1][i];
             }
           });
    return Status();
  });
}

// aten::linear.out(Tensor input, Tensor weight, Tensor? bias=None, *, Tensor(a!) out)
Status linear(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView& weight = arguments.tensor(1);
  const TensorView* bias = arguments.optional_tensor(2);
  TensorView& out = arguments.tensor(3);
  if (!arguments.fault().ok() || in.rank == 0 || weight.rank != 2 ||
      in.sizes[in.rank - 1U] != weight.sizes[1] ||
      (bias != nullptr && static_cast<std::int64_t>(bias->count()) != weight.sizes[0])) {
    return cannot_multiply(in, weight);
  }
  Shape shape = in.shape();
  shape.back() = weight.sizes[0];
  SLIPWAY_RETURN_IF_ERROR(resize(&out, shape));
  const auto k = static_cast<std::size_t>(weight.sizes[1]);
  const auto n = static_cast<std::size_t>(weight.sizes[0]);
  const std::size_t m = n == 0 ? 0 : out.count() / n;
  return in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> result(m * n);
    if (bias != nullptr) {
      const std::vector<T> start = elements_of<T>(*bias);
      for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = start[i % n];
      }
    }
    multiply(elements_of<T>(in).data(), elements_of<T>(weight).data(), true, m, k, n, result.data());
    put(result, out);
    return Status();
  });
}

constexpr KernelEntry kLinearAlgebraTable[] = {
    {"aten::addmm.out", addmm, 6},
    {"aten::bmm.out", bmm, 3},
    {"aten::linear.out", linear, 4},
    {"aten::mm.out", mm, 3},
};

}  // namespace

const KernelEntry* linear_algebra_kernels(std::size_t* count) {
  return entries_of(kLinearAlgebraTable, count);
}

}  // namespace slipway::lean
