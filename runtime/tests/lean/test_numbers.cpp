// Numbers that a program gives to operators reach integer arithmetic whole: no float in between, no cast out
// of range.
#include <numeric>

#include "check.h"
#include "lean/kernels/kernel.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;  // float64 has its neighbours only
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

TensorView view_of(const Shape& shape, std::vector<std::int64_t>* numbers) {
  TensorView view;
  view.dtype = DType::kInt64;
  view.rank = static_cast<std::uint8_t>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    view.sizes[i] = view.bounds[i] = shape[i];
    view.order[i] = static_cast<std::uint8_t>(i);
  }
  numbers->resize(view.count());
  view.data = reinterpret_cast<std::uint8_t*>(numbers->data());
  view.capacity = numbers->size() * sizeof(std::int64_t);
  return view;
}

// `count` arguments, and the items of lists behind them.
void call(const char* name, std::size_t count, std::vector<EValue> values) {
  std::vector<std::int32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  Scratch scratch;
  Arguments arguments(&values, indices.data(), indices.size(), &scratch);
  const KernelEntry* entry = find_kernel(name);
  CHECK(entry != nullptr);
  CHECK(entry->function(arguments).ok());
  CHECK(arguments.fault().ok());
}

// beta * 1 + alpha * (2 * 3)
std::int64_t addmm(const EValue& beta, const EValue& alpha) {
  std::vector<std::int64_t> self = {1};
  std::vector<std::int64_t> left = {2};
  std::vector<std::int64_t> right = {3};
  std::vector<std::int64_t> out;
  call("aten::addmm.out", 6,
       {view_of({1}, &self), view_of({1, 1}, &left), view_of({1, 1}, &right), beta, alpha,
        view_of({1, 1}, &out)});
  return out[0];
}

// What stands before the one element of a tensor.
std::int64_t padded_with(const EValue& number) {
  std::vector<std::int64_t> in = {7};
  std::vector<std::int64_t> out;
  IntList pad;
  pad.items = {4, 5};
  call("aten::constant_pad_nd.out", 4,
       {view_of({1}, &in), pad, number, view_of({2}, &out), std::int64_t{1}, std::int64_t{0}});
  CHECK_EQUAL(out[1], 7);
  return out[0];
}

std::int64_t full_of(const EValue& number) {
  std::vector<std::int64_t> out;
  IntList shape;
  shape.items = {3};
  call("aten::full.out", 3, {shape, number, view_of({1}, &out), std::int64_t{1}});
  return out[0];
}

}  // namespace

TEST(integers_beyond_floats_stay_exact) {
  CHECK_EQUAL(addmm(kOdd, std::int64_t{0}), kOdd);
  CHECK_EQUAL(addmm(std::int64_t{0}, kOdd), 6 * kOdd);
  CHECK_EQUAL(padded_with(kOdd), kOdd);
  CHECK_EQUAL(padded_with(kMost), kMost);
  CHECK_EQUAL(full_of(kOdd), kOdd);
}

TEST(floats_beyond_integers_become_the_nearest) {
  CHECK_EQUAL(addmm(1e300, std::int64_t{0}), kMost);
  CHECK_EQUAL(addmm(-1e300, std::int64_t{0}), kLeast);
  CHECK_EQUAL(addmm(std::numeric_limits<double>::quiet_NaN(), std::int64_t{1}), 6);
  CHECK_EQUAL(padded_with(2.9), 2);
  CHECK_EQUAL(full_of(-2.9), -2);
}
