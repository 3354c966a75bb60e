#include "scalar_types.h"

#include <algorithm>
#include <iterator>

namespace slipway::onnx {
namespace {

struct Row {
  DType dtype;
  std::int64_t proto;  // onnx.proto's TensorProto.DataType
  ONNXTensorElementDataType element;
};

constexpr Row kRows[] = {
    {DType::kFloat32, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
    {DType::kUInt8, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
    {DType::kInt8, 3, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},
    {DType::kUInt16, 4, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16},
    {DType::kInt16, 5, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16},
    {DType::kInt32, 6, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
    {DType::kInt64, 7, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {DType::kBool, 9, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL},
    {DType::kFloat16, 10, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},
    {DType::kFloat64, 11, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
    {DType::kUInt32, 12, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32},
    {DType::kUInt64, 13, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},
    {DType::kBFloat16, 16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16},
};

template <typename Matches>
const Row* find(Matches matches) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows), matches);
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

DType from_proto(std::int64_t data_type) {
  const Row* row = find([&](const Row& candidate) { return candidate.proto == data_type; });
  return row == nullptr ? DType::kUnknown : row->dtype;
}

DType to_dtype(ONNXTensorElementDataType type) {
  const Row* row = find([&](const Row& candidate) { return candidate.element == type; });
  return row == nullptr ? DType::kUnknown : row->dtype;
}

ONNXTensorElementDataType to_element_type(DType dtype) {
  const Row* row = find([&](const Row& candidate) { return candidate.dtype == dtype; });
  return row == nullptr ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED : row->element;
}

}  // namespace slipway::onnx
