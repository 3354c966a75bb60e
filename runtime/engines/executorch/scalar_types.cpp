#include "scalar_types.h"

namespace slipway {
namespace {

using executorch::aten::ScalarType;

struct Row {
  pte::ScalarType stored;
  ScalarType loaded;
  DType dtype;
  std::size_t size;
};

constexpr Row kRows[] = {
    {pte::ScalarType::BYTE, ScalarType::Byte, DType::kUInt8, 1},
    {pte::ScalarType::CHAR, ScalarType::Char, DType::kInt8, 1},
    {pte::ScalarType::SHORT, ScalarType::Short, DType::kInt16, 2},
    {pte::ScalarType::INT, ScalarType::Int, DType::kInt32, 4},
    {pte::ScalarType::LONG, ScalarType::Long, DType::kInt64, 8},
    {pte::ScalarType::HALF, ScalarType::Half, DType::kFloat16, 2},
    {pte::ScalarType::FLOAT, ScalarType::Float, DType::kFloat32, 4},
    {pte::ScalarType::DOUBLE, ScalarType::Double, DType::kFloat64, 8},
    {pte::ScalarType::BOOL, ScalarType::Bool, DType::kBool, 1},
    {pte::ScalarType::BFLOAT16, ScalarType::BFloat16, DType::kBFloat16, 2},
    {pte::ScalarType::UINT16, ScalarType::UInt16, DType::kUInt16, 2},
    {pte::ScalarType::UINT32, ScalarType::UInt32, DType::kUInt32, 4},
    {pte::ScalarType::UINT64, ScalarType::UInt64, DType::kUInt64, 8},
    {pte::ScalarType::QINT8, ScalarType::QInt8, DType::kUnknown, 1},
    {pte::ScalarType::QUINT8, ScalarType::QUInt8, DType::kUnknown, 1},
    {pte::ScalarType::QINT32, ScalarType::QInt32, DType::kUnknown, 4},
    {pte::ScalarType::QUINT4X2, ScalarType::QUInt4x2, DType::kUnknown, 1},
    {pte::ScalarType::QUINT2X4, ScalarType::QUInt2x4, DType::kUnknown, 1},
    {pte::ScalarType::BITS16, ScalarType::Bits16, DType::kUnknown, 2},
    {pte::ScalarType::FLOAT8E5M2, ScalarType::Float8_e5m2, DType::kUnknown, 1},
    {pte::ScalarType::FLOAT8E4M3FN, ScalarType::Float8_e4m3fn, DType::kUnknown, 1},
    {pte::ScalarType::FLOAT8E5M2FNUZ, ScalarType::Float8_e5m2fnuz, DType::kUnknown, 1},
    {pte::ScalarType::FLOAT8E4M3FNUZ, ScalarType::Float8_e4m3fnuz, DType::kUnknown, 1},
};

const Row* find(pte::ScalarType type) {
  for (const Row& row : kRows) {
    if (row.stored == type) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace

DType to_dtype(pte::ScalarType type) {
  const Row* row = find(type);
  return row == nullptr ? DType::kUnknown : row->dtype;
}

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
    if (row.dtype == dtype && dtype != DType::kUnknown) {
      return row.loaded;
    }
  }
  return ScalarType::Undefined;
}

std::size_t element_size(pte::ScalarType type) {
  const Row* row = find(type);
  return row == nullptr ? 0 : row->size;
}

}  // namespace slipway
