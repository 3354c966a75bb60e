// The rules of provider_rules.toml, built into the program. provider_rules.inc is made of them by the
// runtime's conanfile.py, a row each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "slipway/tensor.h"

namespace slipway::onnx {

// What a node must pass.
enum class Check : std::uint8_t {
  kAbsent,     // it does not have the output
  kAttribute,  // its attribute is one of those allowed
  kAxis,       // from operator set 13: it is over the last axis
  kConstant,   // the input is constant, or absent
  kFixed,      // the first input's dimensions are fixed
  kNever,
  kOnes,       // every number of the attribute is 1
  kOpset,      // the model's operator set is as new
  kOtherType,  // the first input is of another type
  kPresent,    // it has the input
  kRank,
  kScale,     // its output is quantized in this step from 0
  kSingle,    // inputs and output are quantized in one type, with a scale for each channel at most for some
  kSteps,     // its input and output are quantized in different steps
  kType,      // the first input is of one of these types
  kUnshared,  // nothing else reads its output beside an activation that can be fused
  kVector,    // the input has one dimension, of as many as the weights have columns
};

// What is done where a type or a shape is not known.
enum class Unknown : std::uint8_t { kFail, kPass, kModel };

struct Rule {
  std::vector<std::string> operators;
  Check check;
  Unknown unknown;
  std::vector<int> indices;  // of the inputs, of kAbsent's output; -1 is the last input
  std::vector<DType> types;
  std::vector<DType> channels;  // the types that may have a scale for each channel
  const char* attribute;
  bool absent;  // whether a node without the attribute passes
  std::vector<std::string> texts;
  std::vector<std::int64_t> integers;  // allowed, or ranks
  std::vector<double> numbers;         // allowed, or the scale
  std::int64_t from;                   // first dimension, from the back if it is negative; or operator set
  std::int64_t from_axis_before;       // operator set; before it dimensions count from the node's axis on
  const char* why;
  const char* danger;  // empty if the provider leaves the node alone
  int withhold;        // the input that must not be constant then; 0 for none
};

const std::vector<Rule>& rules();

const std::string& outside();
const std::vector<std::string>& fused();
const std::vector<std::string>& fused_into();
const std::vector<std::string>& passing();
const std::vector<std::string>& never_folded();

bool contains(const std::vector<std::string>& names, const std::string& name);

}  // namespace slipway::onnx
