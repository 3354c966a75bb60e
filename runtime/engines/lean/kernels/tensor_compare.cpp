// Operators that choose between elements by comparing.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "lean/kernels/tables.h"
#include "lean/kernels/tensor_iterator.h"

namespace slipway::lean {
namespace {

// A row of elements that one of two rows has, by a row of flags; steps are 0, 1 or more.
template <typename Bits>
void choose_row(const std::array<const std::uint8_t*, 3>& from, const std::array<std::int64_t, 3>& steps,
                std::uint8_t* to, std::int64_t to_step, std::size_t count) {
  const std::uint8_t* flags = from[0];
  const auto* a = reinterpret_cast<const Bits*>(from[1]);
  const auto* b = reinterpret_cast<const Bits*>(from[2]);
  auto* result = reinterpret_cast<Bits*>(to);
  if (steps[0] == 0) {
    const std::size_t chosen = *flags != 0 ? 1 : 2;
    const auto* one = chosen == 1 ? a : b;
    if (steps[chosen] == 1 && to_step == 1) {
      std::memmove(result, one, count * sizeof(Bits));
      return;
    }
    for (std::size_t i = 0; i < count; ++i, one += steps[chosen], result += to_step) {
      *result = *one;
    }
    return;
  }
  const bool plain = steps[0] == 1 && to_step == 1;
  if (plain && steps[1] == 1 && steps[2] == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = flags[i] != 0 ? a[i] : b[i];
    }
  } else if (plain && steps[1] == 0 && steps[2] == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = flags[i] != 0 ? *a : b[i];
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      *result = *flags != 0 ? *a : *b;
      flags += steps[0];
      a += steps[1];
      b += steps[2];
      result += to_step;
    }
  }
}

// Elements as they are, of one type, where flags are bytes.
void choose_by_flags(const std::array<Operand, 3>& operands, TensorView& out) {
  for_each_row(
      out, operands,
      [&](std::uint8_t* to, std::int64_t to_step, const auto& from, const auto& steps, std::size_t length) {
        switch (size_of(out.dtype)) {
          case 1:
            return choose_row<std::uint8_t>(from, steps, to, to_step, length);
          case 2:
            return choose_row<std::uint16_t>(from, steps, to, to_step, length);
          case 4:
            return choose_row<std::uint32_t>(from, steps, to, to_step, length);
          default:
            return choose_row<std::uint64_t>(from, steps, to, to_step, length);
        }
      });
}

// aten::where.self_out(Tensor condition, Tensor self, Tensor other, *, Tensor(a!) out)
Status where(Arguments& arguments) {
  const TensorView& condition = arguments.tensor(0);
  const TensorView& a = arguments.tensor(1);
  const TensorView& b = arguments.tensor(2);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  Shape shape;
  Status done = broadcast_shape(a, b, &shape);
  SLIPWAY_RETURN_IF_ERROR(done);
  TensorView both;
  both.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), both.sizes.begin());
  done = broadcast_shape(condition, both, &shape);
  if (done.ok()) {
    done = resize(&out, shape);
  }
  SLIPWAY_RETURN_IF_ERROR(done);
  const std::array<Operand, 3> operands = {operand_of(condition, out), operand_of(a, out),
                                           operand_of(b, out)};
  if (condition.dtype == DType::kBool && a.dtype == out.dtype && b.dtype == out.dtype) {
    choose_by_flags(operands, out);
    return {};
  }
  in_domain(domain_of(promote(a.dtype, b.dtype)), [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, operands, [](const T* const* inputs, T* result, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        result[i] = inputs[0][i] != 0 ? inputs[1][i] : inputs[2][i];
      }
    });
    return 0;
  });
  return {};
}

// aten::clamp.Tensor_out(Tensor self, Tensor? min=None, Tensor? max=None, *, Tensor(a!) out)
Status clamp_tensors(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  const TensorView* low = arguments.optional_tensor(1);
  const TensorView* high = arguments.optional_tensor(2);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const TensorView& first = low != nullptr ? *low : in;
  const TensorView& last = high != nullptr ? *high : in;
  Shape shape;
  Status done = broadcast_shape(in, first, &shape);
  SLIPWAY_RETURN_IF_ERROR(done);
  TensorView both;
  both.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), both.sizes.begin());
  done = broadcast_shape(both, last, &shape);
  if (done.ok()) {
    done = resize(&out, shape);
  }
  SLIPWAY_RETURN_IF_ERROR(done);
  const bool has_low = low != nullptr;
  const bool has_high = high != nullptr;
  in_domain(domain_of(out.dtype), [&](auto zero) {
    using T = decltype(zero);
    map<T>(out, std::array<Operand, 3>{operand_of(in, out), operand_of(first, out), operand_of(last, out)},
           [=](const T* const* inputs, T* result, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i) {
               T x = inputs[0][i];
               // A NaN bound wins over everything.
               if (has_low && (x < inputs[1][i] || inputs[1][i] != inputs[1][i])) {
                 x = inputs[1][i];
               }
               if (has_high && (x > inputs[2][i] || inputs[2][i] != inputs[2][i])) {
                 x = inputs[2][i];
               }
               result[i] = x;
             }
           });
    return 0;
  });
  return {};
}

constexpr KernelEntry kCompareTable[] = {
    {"aten::clamp.Tensor_out", clamp_tensors, 4, Sharing::kEach},
    {"aten::where.self_out", where, 4, Sharing::kEach},
};

}  // namespace

KernelTable compare_kernels() {
  return kCompareTable;
}

}  // namespace slipway::lean
