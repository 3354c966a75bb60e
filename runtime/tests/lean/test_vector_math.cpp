// Functions for vectors against the C library's in double, over all floats: normal ones, subnormal ones,
// infinite ones and NaN.
#include "check.h"
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
