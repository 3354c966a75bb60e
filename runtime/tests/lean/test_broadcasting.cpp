// Broadcasting as PyTorch defines it: dimensions are compared from the last one, and a size of 1 repeats.
#include <array>
#include <numeric>

#include "check.h"
#include "lean/kernels/tensor_iterator.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

// A float32 tensor with the elements first, first + 1, ... in the order of its memory.
struct Floats {
  explicit Floats(const Shape& shape, float first = 0, const std::vector<std::uint8_t>& order = {}) {
    view.dtype = DType::kFloat32;
    view.rank = static_cast<std::uint8_t>(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) {
      view.sizes[i] = view.bounds[i] = shape[i];
      view.order[i] = order.empty() ? static_cast<std::uint8_t>(i) : order[i];
    }
    numbers.resize(view.count());
    std::iota(numbers.begin(), numbers.end(), first);
    view.data = reinterpret_cast<std::uint8_t*>(numbers.data());
    view.capacity = numbers.size() * sizeof(float);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  // The element that `index` of a tensor of rank `rank` broadcasts from.
  float at(const std::vector<std::int64_t>& index, std::size_t rank) const {
    const auto strides = view.strides();
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < view.rank; ++d) {
      offset += view.sizes[d] == 1 ? 0 : index[rank - view.rank + d] * strides[d];
    }
    return numbers[static_cast<std::size_t>(offset)];
  }

  std::vector<float> numbers;
  TensorView view;
};

Shape broadcast(const Shape& a, const Shape& b) {
  Shape shape;
  CHECK(broadcast_shape(Floats(a).view, Floats(b).view, &shape).ok());
  return shape;
}

// out = 1000 a + b, compared element by element with what index arithmetic says.
void check_sum(const Shape& a_shape, const Shape& b_shape, const std::vector<std::uint8_t>& out_order,
               const std::vector<std::uint8_t>& b_order = {}) {
  const Floats a(a_shape, 1);
  const Floats b(b_shape, 1, b_order);
  Shape shape;
  CHECK(broadcast_shape(a.view, b.view, &shape).ok());
  Floats out(shape, 0, out_order);
  map<float>(out.view, std::array<Operand, 2>{operand_of(a.view, out.view), operand_of(b.view, out.view)},
             [](const float* const* in, float* result, std::size_t count) {
               for (std::size_t i = 0; i < count; ++i) {
                 result[i] = 1000 * in[0][i] + in[1][i];
               }
             });
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t n = 0; n < out.view.count(); ++n) {
    const float expected = 1000 * a.at(index, shape.size()) + b.at(index, shape.size());
    CHECK_EQUAL(out.at(index, shape.size()), expected);
    for (std::size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) {
      index[d] = 0;
    }
  }
}

}  // namespace

TEST(broadcast_shapes_are_compared_from_the_last_dimension) {
  CHECK(broadcast({2, 1, 3}, {4, 1}) == Shape({2, 4, 3}));
  CHECK(broadcast({4, 1}, {2, 1, 3}) == Shape({2, 4, 3}));
  CHECK(broadcast({}, {3}) == Shape({3}));
  CHECK(broadcast({}, {}).empty());
  CHECK(broadcast({0}, {1}) == Shape({0}));
  CHECK(broadcast({5, 1}, {0}) == Shape({5, 0}));
}

TEST(broadcast_of_other_sizes_is_refused_by_both_shapes) {
  Shape shape;
  const Status status = broadcast_shape(Floats({2, 3}).view, Floats({3, 2}).view, &shape);
  CHECK(!status.ok());
  CHECK_CONTAINS(status.message(), "2x3 and 3x2 do not go together");
  CHECK(!broadcast_shape(Floats({0}).view, Floats({2}).view, &shape).ok());
}

TEST(broadcast_operands_repeat_along_sizes_of_one) {
  check_sum({2, 3}, {2, 3}, {0, 1});
  check_sum({2, 3}, {3}, {0, 1});
  check_sum({2, 3}, {2, 1}, {0, 1});
  check_sum({2, 1, 3}, {4, 1}, {0, 1, 2});
  check_sum({1}, {2, 3, 4}, {0, 1, 2});
  check_sum({}, {}, {});
  check_sum({2, 300}, {300}, {0, 1});  // rows longer than a block
}

TEST(broadcast_results_and_operands_in_any_memory_order) {
  check_sum({2, 3}, {3}, {1, 0});
  check_sum({2, 3, 4, 5}, {3, 1, 1}, {0, 2, 3, 1});
  check_sum({2, 3, 4, 5}, {2, 3, 4, 5}, {0, 2, 3, 1}, {0, 1, 2, 3});
  check_sum({2, 3, 4}, {2, 3, 4}, {0, 1, 2}, {2, 0, 1});
}
