// Functions for vectors against the C library's in double, over all floats: normal ones, subnormal ones,
// infinite ones and NaN.
#include <array>

#include "check.h"
#include "lean/kernels/sums.h"
#include "lean/kernels/vector_math.h"

using namespace slipway::lean;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The distance between neighbours at `x`.
double spacing_at(float x) {
  const float magnitude = std::fabs(x);
  if (magnitude < std::numeric_limits<float>::min()) {
    return std::numeric_limits<float>::denorm_min();
  }
  return static_cast<double>(std::nextafter(magnitude, kInfinity)) - static_cast<double>(magnitude);
}

// The largest error in units of the last place, at every `kStep`th of all bit patterns that are numbers.
template <typename F, typename G>
double worst_error(F found_of, G expected_of) {
  constexpr std::uint64_t kStep = 3571;  // a prime: other fractions at each exponent
  double worst = 0;
  for (std::uint64_t bits = 0; bits <= UINT32_MAX; bits += kStep) {
    const float x = detail::float_of(static_cast<std::uint32_t>(bits));
    if (x != x) {
      continue;
    }
    const double expected = expected_of(static_cast<double>(x));
    const auto rounded = static_cast<float>(expected);
    const float found = found_of(x);
    if (std::isinf(rounded) || std::isinf(found)) {
      // Beside the largest number, either may be the nearer one.
      const double bound = std::numeric_limits<float>::max();
      worst = found == rounded || std::fabs(expected - std::copysign(bound, expected)) < 1e32 ? worst : 1e9;
      continue;
    }
    const double error = std::fabs(static_cast<double>(found) - expected) / spacing_at(rounded);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

}  // namespace

TEST(vector_math_is_as_near_as_floats_are) {
  CHECK(worst_error([](float x) { return exp_of(x); }, [](double x) { return std::exp(x); }) < 1.5);
  CHECK(worst_error([](float x) { return tanh_of(x); }, [](double x) { return std::tanh(x); }) < 2);
  CHECK(worst_error([](float x) { return erf_of(x); }, [](double x) { return std::erf(x); }) < 2);
  // Below, e^-x is infinite and the sigmoid 0 instead of a subnormal number, as with the C library's.
  const auto least = [](auto x) { return x < -87 ? decltype(x)(-87) : x; };
  CHECK(worst_error([&](float x) { return sigmoid_of(least(x)); },
                    [&](double x) { return 1 / (1 + std::exp(-least(x))); }) < 4);
}

TEST(vector_math_of_what_is_no_number_and_of_the_ends) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(exp_of(nan)));
  CHECK(std::isnan(tanh_of(nan)));
  CHECK(std::isnan(erf_of(-nan)));
  CHECK_EQUAL(exp_of(kInfinity), kInfinity);
  CHECK_EQUAL(exp_of(-kInfinity), 0.0F);
  CHECK_EQUAL(exp_of(0.0F), 1.0F);
  CHECK_EQUAL(exp_of(88.9F), kInfinity);
  CHECK_EQUAL(exp_of(-104.5F), 0.0F);
  CHECK_EQUAL(exp_of(-103.0F), std::numeric_limits<float>::denorm_min());
  CHECK_EQUAL(tanh_of(kInfinity), 1.0F);
  CHECK_EQUAL(tanh_of(-kInfinity), -1.0F);
  CHECK_EQUAL(erf_of(-kInfinity), -1.0F);
  CHECK_EQUAL(sigmoid_of(-kInfinity), 0.0F);
  CHECK(std::signbit(tanh_of(-0.0F)));
  CHECK(std::signbit(erf_of(-0.0F)));
}

TEST(vector_math_in_loops_gives_what_it_gives_alone) {
  std::vector<float> found(1003);
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i] = (static_cast<float>(i) - 500) * 0.17F;
  }
  const std::vector<float> given = found;
  for (float& x : found) {
    x = exp_of(x) + tanh_of(x) + erf_of(x);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    volatile float x = given[i];
    const float alone = exp_of(x) + tanh_of(x) + erf_of(x);
    CHECK(std::fabs(found[i] - alone) <= std::fabs(alone) * 1e-6F);
  }
}

TEST(vector_math_adds_all_elements_once) {
  for (std::size_t count = 0; count < 70; ++count) {
    std::vector<std::int64_t> whole(count);
    std::vector<double> real(count);
    for (std::size_t i = 0; i < count; ++i) {
      whole[i] = static_cast<std::int64_t>(i * i) - 7;
      real[i] = static_cast<double>(whole[i]) * 0.25;
    }
    std::int64_t expected = 0;
    for (const std::int64_t one : whole) {
      expected += one;
    }
    CHECK_EQUAL(sum_of_run(whole.data(), count), expected);
    CHECK_EQUAL(sum_of_run(real.data(), count), static_cast<double>(expected) * 0.25);
    CHECK_EQUAL(sum_of_each(whole.data(), count, [](std::int64_t x) { return 2 * x; }), 2 * expected);
  }
}
