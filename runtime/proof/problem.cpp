#include "problem.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace proof {

namespace {

double OutputAt(const Problem& problem, const std::uint8_t* output, std::size_t index) {
  if (problem.magnitude.empty()) return static_cast<std::int8_t>(output[index]);
  float value = 0;
  std::memcpy(&value, output + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

Error ErrorOf(const Problem& problem, const std::uint8_t* output) {
  Error worst;
  for (std::size_t i = 0; i < problem.expected.size(); ++i) {
    const double got = OutputAt(problem, output, i);
    double error = std::fabs(got - problem.expected[i]);
    if (!problem.magnitude.empty() && error != 0) error /= problem.magnitude[i];
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (i == 0 || error > worst.most) worst = {error, i, got};
  }
  return worst;
}

std::size_t OutputBytes(const Problem& problem) {
  return problem.expected.size() * (problem.magnitude.empty() ? 1 : sizeof(float));
}

}  // namespace proof
