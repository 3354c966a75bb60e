#include "scalar_types.h"

namespace slipway {
namespace {

using executorch::aten::ScalarType;

struct Row {
  ScalarType loaded;
  DType dtype;
};

constexpr Row kRows[] = {
    {ScalarType::Byte, DType::kUInt8},
    {ScalarType::Char, DType::kInt8},
    {ScalarType::Short, DType::kInt16},
    {ScalarType::Int, DType::kInt32},
    {ScalarType::Long, DType::kInt64},
    {ScalarType::Half, DType::kFloat16},
    {ScalarType::Float, DType::kFloat32},
    {ScalarType::Double, DType::kFloat64},
    {ScalarType::Bool, DType::kBool},
    {ScalarType::BFloat16, DType::kBFloat16},
    {ScalarType::UInt16, DType::kUInt16},
    {ScalarType::UInt32, DType::kUInt32},
    {ScalarType::UInt64, DType::kUInt64},
    {ScalarType::ComplexFloat, DType::kComplex64},
    {ScalarType::ComplexDouble, DType::kComplex128},
};

}  // namespace

DType to_dtype(ScalarType type) {
  for (const Row& row : kRows) {
    if (row.loaded == type) {
      return row.dtype;
    }
  }
  return DType::kUnknown;
}

ScalarType to_scalar_type(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) {
      return row.loaded;
    }
  }
  return ScalarType::Undefined;
}

}  // namespace slipway
