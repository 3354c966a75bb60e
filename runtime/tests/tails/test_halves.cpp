// Every function of one float16, of XNNPACK's, of ours in its place and of the portable kernels, against the
// C library's in double: normal inputs, subnormal ones, infinite ones and NaN.
#include <xnnpack/common.h>
#include <xnnpack/config.h>
#include <xnnpack/hardware-config.h>

#include <cstdio>

#include "check.h"
#include "lean/graph_maker.h"
#include "lean/kernels/elements.h"
#include "lean/kernels/kernel.h"
#include "lean/xnnpack/packed_weights.h"
#include "tail_layers.h"

using namespace slipway;
using namespace slipway::lean;

namespace tails {
namespace {

using Node = xnn::XNodeUnion;

constexpr std::size_t kAll = 65536;
constexpr double kLeastNormal = 0x1p-14;
constexpr double kSlope = 0.01;
constexpr double kLow = -1.5;
constexpr double kHigh = 6;

// To nearest, ties to even, and once.
std::uint16_t nearest_half(double value) {
  if (std::isnan(value) || std::isinf(value) || value == 0) {
    return float_to_half(static_cast<float>(value));
  }
  const int exponent = std::max(std::ilogb(value), -14) - 10;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  return float_to_half(static_cast<float>(std::copysign(std::min(std::fabs(rounded), 1e6), value)));
}

// Halves in their order, as neighbours; both zeros are one.
int place_of(std::uint16_t bits) {
  return (bits & 0x8000) != 0 ? -(bits & 0x7FFF) : bits;
}

double sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
double clamped(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;  // NaN stays
}
double elu_of(double x, double alpha) {
  return x <= 0 ? alpha * std::expm1(x) : x;
}

constexpr auto absolute = [](double x) { return std::fabs(x); };
constexpr auto clamp = [](double x) { return clamped(x, kLow, kHigh); };
constexpr auto elu = [](double x) { return elu_of(x, 1); };
constexpr auto gelu = [](double x) { return x / 2 * std::erfc(-x * std::sqrt(0.5)); };
constexpr auto gelu_by_tanh = [](double x) {
  const double inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return x * sigmoid(2 * inner);
};
constexpr auto hardswish = [](double x) { return x * clamped(x + 3, 0, 6) / 6; };
constexpr auto leaky = [](double x) { return x > 0 ? x : x * kSlope; };
constexpr auto negated = [](double x) { return -x; };
constexpr auto reciprocal_root = [](double x) { return 1 / std::sqrt(x); };

// What a function is allowed beside the nearest half and its neighbours.
enum Allowance : unsigned {
  kNoAllowance = 0,
  // Where XNNPACK computes in float16, on Arm, it takes subnormal numbers for 0, as upstream's runtime does.
  kFlushes = 1,
  // NaN may be a bound: XNNPACK's kernels for AVX2 lose it, as upstream's runtime does.
  kLosesNan = 2,
  // Two steps, as in upstream's runtime: what float32 cancels where the result is nearly 0 (gelu), and what
  // XNNPACK rounds on the way where it computes in float16 (elu) or has no kernel for it (hardswish).
  kTwoSteps = 4,
  // Infinite inputs: 0 times infinity instead of the limit, as in PyTorch.
  kNoLimits = 8,
  // -0 may become 0: XNNPACK's kernels add what is 0 to it, as upstream's runtime does.
  kPlainZero = 16,
};

struct Function {
  const char* name;  // the operator's, of portable kernels
  double (*expected)(double);
  unsigned allowance = kNoAllowance;
  Node node = Node::NONE;  // of a delegate's graph
  float parameter = 0;
  std::vector<EValue> arguments = {};  // of an operator, between input and output
};

std::vector<Function> functions() {
  tail_bench();  // leaves features unused
  const unsigned without_kernel = xnn_init_f16_hswish_config() == nullptr ? kTwoSteps : kNoAllowance;
  const EValue low = kLow, high = kHigh, one = 1.0;
  std::vector<Function> all = {
      {"abs", absolute, kNoAllowance, Node::XNNAbs},
      {"ceil", std::ceil, kFlushes, Node::XNNCeiling},
      {"clamp", clamp, kFlushes | kLosesNan, Node::XNNClamp},
      {"cos", std::cos, kNoAllowance, Node::XNNCos},
      {"elu", elu, kFlushes | kPlainZero | kTwoSteps, Node::XNNELU, 1},
      {"elu of 0.25", [](double x) { return elu_of(x, 0.25); }, kFlushes | kPlainZero | kTwoSteps,
       Node::XNNELU, 0.25F},
      {"exp", std::exp, kNoAllowance, Node::XNNExp},
      {"floor", std::floor, kFlushes, Node::XNNFloor},
      {"gelu", gelu, kTwoSteps | kNoLimits, Node::XNNGelu},
      {"hardswish", hardswish, without_kernel | kNoLimits, Node::XNNHardswish},
      {"leaky_relu", leaky, kFlushes, Node::XNNLeakyReLU, static_cast<float>(kSlope)},
      {"log", std::log, kNoAllowance, Node::XNNLog},
      {"neg", negated, kNoAllowance, Node::XNNNegate},
      {"rsqrt", reciprocal_root, kNoAllowance, Node::XNNReciprocalSquareRoot},
      {"sigmoid", sigmoid, kNoAllowance, Node::XNNSigmoid},
      {"sin", std::sin, kNoAllowance, Node::XNNSin},
      {"sqrt", std::sqrt, kNoAllowance, Node::XNNSquareRoot},
      {"square", [](double x) { return x * x; }, kFlushes, Node::XNNSquare},
      {"tanh", std::tanh, kNoAllowance, Node::XNNTanh},
  };
  const EValue none(std::string_view("none")), by_tanh(std::string_view("tanh"));
  const auto add = [&](const char* name, double (*expected)(double), std::vector<EValue> arguments,
                       unsigned allowance = kNoAllowance) {
    all.push_back({name, expected, allowance, Node::NONE, 0, std::move(arguments)});
  };
  add("aten::clamp.out", clamp, {low, high});
  add("aten::hardtanh.out", clamp, {low, high});
  add("aten::elu.out", elu, {one, one, one});
  add("aten::gelu.out", gelu, {none}, kTwoSteps | kNoLimits);
  add("aten::gelu.out", gelu_by_tanh, {by_tanh}, kTwoSteps | kNoLimits);
  add("aten::leaky_relu.out", leaky, {EValue(kSlope)});
  add("aten::logit.out", [](double x) { return std::log(x / (1 - x)); }, {EValue()});
  for (const Function& plain :
       {Function{"abs", absolute},
        {"acos", std::acos},
        // Zig's C library gives numbers below 1, too.
        {"acosh", [](double x) { return x < 1 ? std::numeric_limits<double>::quiet_NaN() : std::acosh(x); }},
        {"asin", std::asin},
        {"asinh", std::asinh},
        {"atan", std::atan},
        {"atanh", std::atanh},
        {"ceil", std::ceil},
        {"cos", std::cos},
        {"cosh", std::cosh},
        {"erf", std::erf},
        {"exp", std::exp},
        {"expm1", std::expm1},
        {"floor", std::floor},
        {"hardsigmoid", [](double x) { return clamped(x + 3, 0, 6) / 6; }},
        {"hardswish", hardswish, kNoLimits},
        {"log", std::log},
        {"log10", std::log10},
        {"log1p", std::log1p},
        {"log2", std::log2},
        {"neg", negated},
        {"reciprocal", [](double x) { return 1 / x; }},
        {"relu", [](double x) { return x < 0 ? 0 : x; }},
        {"round", std::nearbyint},
        {"rsqrt", reciprocal_root},
        {"sigmoid", sigmoid},
        {"sign", [](double x) { return x > 0 || x < 0 ? std::copysign(1.0, x) : x; }},
        {"silu", [](double x) { return x * sigmoid(x); }, kNoLimits},
        {"sin", std::sin},
        {"sinh", std::sinh},
        {"sqrt", std::sqrt},
        {"tan", std::tan},
        {"tanh", std::tanh},
        {"trunc", std::trunc}}) {
    all.push_back(plain);
  }
  return all;
}

// Of a graph with this one node, of numbers of these types.
std::vector<std::uint8_t> payload_of(const Function& function, Type input, Type output) {
  GraphRecipe recipe{function.node, {{input, {kAll}}, {output, {kAll}, ValueRecipe::Role::kOutput}}};
  recipe.number = function.parameter;
  if (function.node == Node::XNNClamp) {
    recipe.range = {static_cast<float>(kLow), static_cast<float>(kHigh)};
  }
  return make_graph(recipe);
}

// Runs a delegate of one node on the first input, then on others of its own.
class OneNode {
 public:
  OneNode(const Function& function, Type input, Type output)
      : read_(payload_of(function, input, output)), weights_(any_store()), types_{input, output} {
    Result<std::unique_ptr<Delegate>> made =
        Delegate::load(tail_bench().alone, weights_, std::move(*read_.payload), "Delegate 0", false, false);
    status_ = made.ok() ? Status() : made.status();
    delegate_ = made.ok() ? std::move(made.value()) : nullptr;
  }

  Status run(void* from, void* to, std::size_t count) {
    if (delegate_ == nullptr) {
      return status_;
    }
    TensorView input = view_of(types_[0], {kAll}, static_cast<std::uint8_t*>(from));
    TensorView output = view_of(types_[1], {kAll}, static_cast<std::uint8_t*>(to));
    input.sizes[0] = output.sizes[0] = static_cast<std::int64_t>(count);
    return delegate_->execute({&input, &output});
  }

 private:
  ReadPayload read_;
  PackedWeights weights_;
  Type types_[2];
  Status status_;
  std::unique_ptr<Delegate> delegate_;
};

using Halves = std::vector<std::uint16_t>;

Status run_kernel(const Function& function, Halves* from, Halves* to) {
  const std::string name = function.arguments.empty() ? std::string("aten::") + function.name + ".out"
                                                      : std::string(function.name);
  const KernelEntry* kernel = find_kernel(name);
  if (kernel == nullptr) {
    return {Code::kMissingOperator, "there is no " + name, ""};
  }
  std::vector<EValue> values;
  values.emplace_back(
      view_of(Type::xnn_datatype_fp16, {kAll}, reinterpret_cast<std::uint8_t*>(from->data())));
  values.insert(values.end(), function.arguments.begin(), function.arguments.end());
  values.emplace_back(view_of(Type::xnn_datatype_fp16, {kAll}, reinterpret_cast<std::uint8_t*>(to->data())));
  std::vector<std::int32_t> indices;
  for (std::size_t i = 0; i < values.size(); ++i) {
    indices.push_back(static_cast<std::int32_t>(i));
  }
  Scratch scratch;
  Arguments arguments(&values, indices.data(), indices.size(), &scratch);
  const Status done = kernel->function(arguments);
  return done.ok() ? arguments.fault() : done;
}

bool flushes() {
#if XNN_ARCH_ARM || XNN_ARCH_ARM64
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  return hardware != nullptr && hardware->use_arm_neon_fp16_arith;
#else
  return false;
#endif
}

bool is_right(const Function& function, std::uint16_t given, std::uint16_t found) {
  const double x = static_cast<double>(half_to_float(given));
  const double got = static_cast<double>(half_to_float(found));
  const double expected = function.expected(x);
  if ((function.allowance & kNoLimits) != 0 && std::isinf(x) && std::isnan(got)) {
    return true;
  }
  if ((function.allowance & kLosesNan) != 0 && std::isnan(x)) {
    return std::isnan(got) || got == kLow || got == kHigh;
  }
  if ((function.allowance & kFlushes) != 0 && flushes()) {
    const double other = std::fabs(x) < kLeastNormal ? function.expected(std::copysign(0.0, x)) : expected;
    if (got == other || (std::fabs(expected) <= kLeastNormal && got == 0)) {
      return true;
    }
  }
  if (std::isnan(expected) || std::isnan(got)) {
    return std::isnan(expected) == std::isnan(got);
  }
  const std::uint16_t nearest = nearest_half(expected);
  const int steps = std::abs(place_of(found) - place_of(nearest));
  const bool sign_kept = got != 0 || expected != 0 || (function.allowance & kPlainZero) != 0 ||
                         std::signbit(got) == std::signbit(expected);
  return steps <= ((function.allowance & kTwoSteps) != 0 ? 2 : 1) && sign_kept;
}

// One of so many inputs, and those beside the ends of each power of two.
bool is_taken(std::size_t bits) {
  static const std::size_t every = how_much().every;
  const std::size_t fraction = bits & 0x3FF;
  return bits % every == 0 || fraction <= 1 || fraction == 0x3FF;
}

std::string text_of(const Function& function, std::uint16_t given, std::uint16_t found) {
  const float x = half_to_float(given);
  char text[160];
  std::snprintf(text, sizeof(text), "%s%s of %.6g: %.6g instead of %.6g", function.name,
                function.node == Node::NONE ? "" : " in a delegate", static_cast<double>(x),
                static_cast<double>(half_to_float(found)), function.expected(static_cast<double>(x)));
  return text;
}

TEST("functions of halves are as near as halves are") {
  Halves from(kAll);
  for (std::size_t i = 0; i < kAll; ++i) {
    from[i] = static_cast<std::uint16_t>(i);
  }
  const Halves given = from;
  for (const Function& function : functions()) {
    Halves to(kAll + 16);
    const bool delegated = function.node != Node::NONE;
    OneNode node(delegated ? function : functions().front(), Type::xnn_datatype_fp16,
                 Type::xnn_datatype_fp16);
    const Status done = delegated ? node.run(from.data(), to.data(), kAll) : run_kernel(function, &from, &to);
    if (!done.ok()) {
      FAILED(function.name + (": " + done.message()));
      continue;
    }
    std::size_t wrong = 0;
    std::string first;
    for (std::size_t i = 0; i < kAll; ++i) {
      if (is_taken(i) && !is_right(function, given[i], to[i]) && ++wrong == 1) {
        first = text_of(function, given[i], to[i]);
      }
    }
    if (wrong != 0) {
      FAILED(first + ", and " + std::to_string(wrong - 1) + " more");
    }
    CHECK(from == given);
    // Few numbers, which fill no vector: the same results, and nothing behind them.
    for (std::size_t count = 1; delegated && count < 16; ++count) {
      constexpr std::size_t kStart = 0x3C00;  // 1 and what follows
      Halves few(kAll, 0x5A5A);
      CHECK(node.run(&from[kStart], few.data(), count).ok());
      CHECK(std::equal(few.begin(), few.begin() + static_cast<std::ptrdiff_t>(count), &to[kStart]));
      CHECK_EQUAL(few[count], 0x5A5A);
    }
  }
}

TEST("conversions between halves and floats round once") {
  const Function convert = {"convert", nullptr, kNoAllowance, Node::XNNConvert};
  Halves halves(kAll);
  std::vector<float> floats(kAll);
  for (std::size_t i = 0; i < kAll; ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
  }
  OneNode widen(convert, Type::xnn_datatype_fp16, Type::xnn_datatype_fp32);
  CHECK(widen.run(halves.data(), floats.data(), kAll).ok());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kAll; ++i) {
    const float expected = half_to_float(halves[i]);
    wrong += std::isnan(expected) || std::memcmp(&floats[i], &expected, sizeof(float)) == 0 ? 0 : 1;
    // All exponents, other fractions.
    const std::uint32_t bits = static_cast<std::uint32_t>(i * 65537U);
    std::memcpy(&floats[i], &bits, sizeof(bits));
  }
  CHECK_EQUAL(wrong, 0);
  OneNode narrow(convert, Type::xnn_datatype_fp32, Type::xnn_datatype_fp16);
  CHECK(narrow.run(floats.data(), halves.data(), kAll).ok());
  for (std::size_t i = 0; i < kAll; ++i) {
    const bool right = halves[i] == nearest_half(static_cast<double>(floats[i])) || std::isnan(floats[i]);
    wrong += right ? 0 : 1;
  }
  CHECK_EQUAL(wrong, 0);
}

}  // namespace
}  // namespace tails
