#pragma once

#include <onnxruntime_cxx_api.h>

#include <cstdint>

#include "slipway/tensor.h"

namespace slipway::onnx {

// TensorProto.DataType, which the file has. kUnknown for strings, complex numbers and types below a byte.
DType from_proto(std::int64_t data_type);

DType to_dtype(ONNXTensorElementDataType type);
ONNXTensorElementDataType to_element_type(DType dtype);

}  // namespace slipway::onnx
