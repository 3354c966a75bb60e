#include "stored_types.h"

namespace slipway {
namespace {

struct Row {
  pte::ScalarType stored;
  DType dtype;
  std::size_t size;
};

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
    {pte::ScalarType::QINT8, DType::kUnknown, 1},
    {pte::ScalarType::QUINT8, DType::kUnknown, 1},
    {pte::ScalarType::QINT32, DType::kUnknown, 4},
    {pte::ScalarType::QUINT4X2, DType::kUnknown, 1},
    {pte::ScalarType::QUINT2X4, DType::kUnknown, 1},
    {pte::ScalarType::BITS16, DType::kUnknown, 2},
    {pte::ScalarType::FLOAT8E5M2, DType::kUnknown, 1},
    {pte::ScalarType::FLOAT8E4M3FN, DType::kUnknown, 1},
    {pte::ScalarType::FLOAT8E5M2FNUZ, DType::kUnknown, 1},
    {pte::ScalarType::FLOAT8E4M3FNUZ, DType::kUnknown, 1},
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

std::uint64_t tensor_bytes(const pte::Tensor& tensor) {
  std::uint64_t bytes = element_size(tensor.scalar_type());
  for (std::size_t i = 0; tensor.sizes() != nullptr && i < tensor.sizes()->size(); ++i) {
    bytes *= static_cast<std::uint64_t>(tensor.sizes()->Get(static_cast<flatbuffers::uoffset_t>(i)));
  }
  return bytes;
}

}  // namespace slipway
