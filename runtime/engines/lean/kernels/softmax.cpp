// Softmax, and its logarithm.
#include <cmath>

#include "lean/kernels/reduction.h"
#include "lean/kernels/tables.h"

namespace slipway::lean {
namespace {

// aten::_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)
template <bool Log>
Status softmax(Arguments& arguments) {
  const TensorView& in = arguments.tensor(0);
  TensorView& out = arguments.tensor(3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(resize(&out, in.shape()));
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    return along<T>(in, out, arguments.integer(1), [](T* line, std::size_t count) {
      T largest = line[0];
      for (std::size_t i = 1; i < count; ++i) {
        largest = line[i] > largest || line[i] != line[i] ? line[i] : largest;
      }
      T total{};
      for (std::size_t i = 0; i < count; ++i) {
        const T power = std::exp(line[i] - largest);
        total += power;
        line[i] = Log ? line[i] - largest : power;
      }
      const T scale = Log ? std::log(total) : T(1) / total;
      for (std::size_t i = 0; i < count; ++i) {
        line[i] = Log ? line[i] - scale : line[i] * scale;
      }
    });
  });
}

constexpr KernelEntry kSoftmaxTable[] = {
    {"aten::_log_softmax.out", softmax<true>, 4},
    {"aten::_softmax.out", softmax<false>, 4},
};

}  // namespace

const KernelEntry* softmax_kernels(std::size_t* count) {
  return entries_of(kSoftmaxTable, count);
}

}  // namespace slipway::lean
