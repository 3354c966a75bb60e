#include "scalar_types.h"

namespace slipway {
namespace {

using executorch::aten::ScalarType;

struct Pair {
  ScalarType scalar_type;
  DType dtype;
};

constexpr Pair kPairs[] = {
    {ScalarType::Byte, DType::kUInt8},     {ScalarType::Char, DType::kInt8},
    {ScalarType::Short, DType::kInt16},    {ScalarType::Int, DType::kInt32},
    {ScalarType::Long, DType::kInt64},     {ScalarType::Half, DType::kFloat16},
    {ScalarType::Float, DType::kFloat32},  {ScalarType::Double, DType::kFloat64},
    {ScalarType::Bool, DType::kBool},      {ScalarType::BFloat16, DType::kBFloat16},
    {ScalarType::UInt16, DType::kUInt16},  {ScalarType::UInt32, DType::kUInt32},
    {ScalarType::UInt64, DType::kUInt64},
};

}  // namespace

DType to_dtype(ScalarType type) {
  for (const Pair& pair : kPairs) {
    if (pair.scalar_type == type) {
      return pair.dtype;
    }
  }
  return DType::kUnknown;
}

ScalarType to_scalar_type(DType dtype) {
  for (const Pair& pair : kPairs) {
    if (pair.dtype == dtype) {
      return pair.scalar_type;
    }
  }
  return ScalarType::Undefined;
}

}  // namespace slipway
