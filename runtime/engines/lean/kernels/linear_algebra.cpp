// Products of matrices.
#include <algorithm>
#include <vector>

#include "lean/kernels/matrix.h"
#include "lean/kernels/tables.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

Status cannot_multiply(const TensorView& a, const TensorView& b) {
  return {Code::kExecution, "cannot multiply " + to_text(a.shape()) + " with " + to_text(b.shape()),
          "check the inputs' shapes against what the program was exported with"};
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
    const Values<T> left(a);
    const Values<T> right(b);
    Values<T> result(out, {&left, &right});
    for (std::size_t i = 0; i < batch; ++i) {
      multiply(left.data() + i * m * k, right.data() + i * k * n, {m, k, n, false}, false,
               result.data() + i * m * n);
    }
    result.put(out);
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
    const Values<T> left(a);
    const Values<T> right(b);
    if (beta.as<T>() == T(1) && alpha.as<T>() == T(1)) {
      Values<T> result(out, {&left, &right});
      TensorView start = straightened(out, result.data());
      copy(start, operand_of(self, out));
      multiply(left.data(), right.data(), {m, k, n, false}, true, result.data());
      result.put(out);
      return Status();
    }
    std::vector<T> result(m * n);
    multiply(left.data(), right.data(), {m, k, n, false}, false, result.data());
    const TensorView products = straightened(out, result.data());
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
    const Values<T> left(in);
    const Values<T> right(weight);
    const std::vector<T> start = bias != nullptr ? elements_of<T>(*bias) : std::vector<T>();
    Values<T> result(out, {&left, &right});
    for (std::size_t i = 0; !start.empty() && i < m; ++i) {
      std::copy(start.begin(), start.end(), result.data() + i * n);
    }
    multiply(left.data(), right.data(), {m, k, n, true}, !start.empty(), result.data());
    result.put(out);
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

KernelTable linear_algebra_kernels() {
  return kLinearAlgebraTable;
}

}  // namespace slipway::lean
