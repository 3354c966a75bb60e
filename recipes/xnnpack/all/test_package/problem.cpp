#include "problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace proof {

namespace {

double FloatError(const Problem& problem, const std::uint8_t* output, std::size_t index) {
  float got = 0;
  std::memcpy(&got, output + index * sizeof got, sizeof got);
  const double difference = std::fabs(got - problem.expected[index]);
  return difference == 0 ? 0 : difference / problem.magnitude[index];
}

double StepError(const Problem& problem, const std::uint8_t* output, std::size_t index) {
  return std::fabs(static_cast<std::int8_t>(output[index]) - problem.expected[index]);
}

}  // namespace

double ErrorOf(const Problem& problem, const std::uint8_t* output) {
  double worst = 0;
  for (std::size_t i = 0; i < problem.expected.size(); ++i) {
    const double error =
        problem.magnitude.empty() ? StepError(problem, output, i) : FloatError(problem, output, i);
    if (!(error <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}

std::size_t OutputBytes(const Problem& problem) {
  return problem.expected.size() * (problem.magnitude.empty() ? 1 : sizeof(float));
}

}  // namespace proof
