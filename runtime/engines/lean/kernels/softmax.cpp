// Softmax, and its logarithm.
#include <algorithm>
#include <cmath>

#include "lean/kernels/reduction.h"
#include "lean/kernels/sums.h"
#include "lean/kernels/tables.h"
#include "lean/kernels/vector_math.h"

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
      constexpr std::size_t kLanes = 16;
      T lanes[kLanes];
      std::fill_n(lanes, kLanes, line[0]);
      std::size_t i = 0;
      // NaN may be passed by: it comes into the total below.
      for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t k = 0; k < kLanes; ++k) {
          lanes[k] = line[i + k] > lanes[k] ? line[i + k] : lanes[k];
        }
      }
      T largest = lanes[0];
      for (std::size_t k = 1; k < kLanes; ++k) {
        largest = lanes[k] > largest ? lanes[k] : largest;
      }
      for (; i < count; ++i) {
        largest = line[i] > largest ? line[i] : largest;
      }
      if constexpr (Log) {
        const T scale = std::log(sum_of_each(line, count, [largest](T x) { return exp_of(x - largest); }));
        for (i = 0; i < count; ++i) {
          line[i] = line[i] - largest - scale;
        }
      } else {
        for (i = 0; i < count; ++i) {
          line[i] = exp_of(line[i] - largest);
        }
        const T scale = T(1) / sum_of_run(line, count);
        for (i = 0; i < count; ++i) {
          line[i] *= scale;
        }
      }
    });
  });
}

constexpr KernelEntry kSoftmaxTable[] = {
    {"aten::_log_softmax.out", softmax<true>, 4, Sharing::kEach},
    {"aten::_softmax.out", softmax<false>, 4, Sharing::kEach},
};

}  // namespace

KernelTable softmax_kernels() {
  return kSoftmaxTable;
}

}  // namespace slipway::lean
