#include "stored_types.h"

namespace slipway {
namespace {

struct Row {
  pte::ScalarType stored;
  DType dtype;
  std::size_t size;
  const char* name = nullptr;  // of a type that is none of ours
};

// Exporters write them, and the schema has them in a comment.
constexpr auto kComplexHalf = static_cast<pte::ScalarType>(8);
constexpr auto kComplexFloat = static_cast<pte::ScalarType>(9);
constexpr auto kComplexDouble = static_cast<pte::ScalarType>(10);

constexpr Row kRows[] = {
    {pte::ScalarType::BYTE, DType::kUInt8, 1},
    {pte::ScalarType::CHAR, DType::kInt8, 1},
    {pte::ScalarType::SHORT, DType::kInt16, 2},
    {pte::ScalarType::INT, DType::kInt32, 4},
    {pte::ScalarType::LONG, DType::kInt64, 8},
    {pte::ScalarType::HALF, DType::kFloat16, 2},
    {pte::ScalarType::FLOAT, DType::kFloat32, 4},
    {pte::ScalarType::DOUBLE, DType::kFloat64, 8},
    {pte::ScalarType::BOOL, DType::kBool, 1},
    {pte::ScalarType::BFLOAT16, DType::kBFloat16, 2},
    {pte::ScalarType::UINT16, DType::kUInt16, 2},
    {pte::ScalarType::UINT32, DType::kUInt32, 4},
    {pte::ScalarType::UINT64, DType::kUInt64, 8},
    {kComplexHalf, DType::kUnknown, 4, "complex32"},
    {kComplexFloat, DType::kComplex64, 8},
    {kComplexDouble, DType::kComplex128, 16},
    {pte::ScalarType::QINT8, DType::kUnknown, 1, "qint8"},
    {pte::ScalarType::QUINT8, DType::kUnknown, 1, "quint8"},
    {pte::ScalarType::QINT32, DType::kUnknown, 4, "qint32"},
    {pte::ScalarType::QUINT4X2, DType::kUnknown, 1, "quint4x2"},
    {pte::ScalarType::QUINT2X4, DType::kUnknown, 1, "quint2x4"},
    {pte::ScalarType::BITS16, DType::kUnknown, 2, "bits16"},
    {pte::ScalarType::FLOAT8E5M2, DType::kUnknown, 1, "float8_e5m2"},
    {pte::ScalarType::FLOAT8E4M3FN, DType::kUnknown, 1, "float8_e4m3fn"},
    {pte::ScalarType::FLOAT8E5M2FNUZ, DType::kUnknown, 1, "float8_e5m2fnuz"},
    {pte::ScalarType::FLOAT8E4M3FNUZ, DType::kUnknown, 1, "float8_e4m3fnuz"},
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

std::size_t element_size(pte::ScalarType type) {
  const Row* row = find(type);
  return row == nullptr ? 0 : row->size;
}

std::string name_of(pte::ScalarType type) {
  const Row* row = find(type);
  return row == nullptr ? "unknown" : row->name == nullptr ? slipway::name_of(row->dtype) : row->name;
}

Dynamism dynamism_of(pte::TensorShapeDynamism dynamism) {
  switch (dynamism) {
    case pte::TensorShapeDynamism::DYNAMIC_BOUND:
      return Dynamism::kBounded;
    case pte::TensorShapeDynamism::DYNAMIC_UNBOUND:
      return Dynamism::kUnbounded;
    default:
      return Dynamism::kStatic;
  }
}

std::uint64_t tensor_bytes(const pte::Tensor& tensor) {
  std::uint64_t bytes = element_size(tensor.scalar_type());
  for (std::size_t i = 0; tensor.sizes() != nullptr && i < tensor.sizes()->size(); ++i) {
    bytes *= static_cast<std::uint64_t>(tensor.sizes()->Get(static_cast<flatbuffers::uoffset_t>(i)));
  }
  return bytes;
}

}  // namespace slipway
