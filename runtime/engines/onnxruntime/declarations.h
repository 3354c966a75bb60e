// What a model declares of its inputs, written anew: in sizes that are fixed for one session, or of constants
// that a caller may replace.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "graph.h"
#include "slipway/tensor.h"
#include "wire_format.h"

namespace slipway::onnx {

// A ValueInfoProto of a tensor.
std::string value_info(const std::string& name, const Value& value);

// Fixes the sizes of the graph's inputs, one shape an input; returns the inputs that were declared otherwise.
// The sizes of other values are open from then on only where they depend on what the inputs hold.
std::vector<std::string> fix_inputs(const std::vector<Shape>& shapes, Graph* graph);

// A ModelProto in which these inputs are declared as the graph has them. ONNX Runtime can fix a size itself
// if it has a name (AddFreeDimensionOverrideByName); files leave sizes without one, too.
std::string with_inputs(wire::Bytes model, const Graph& graph, const std::vector<std::string>& inputs);

// TensorProto.DataType, which the file has. kUnknown for strings, complex numbers and types below a byte.
DType from_proto(std::int64_t data_type);

DType to_dtype(ONNXTensorElementDataType type);
ONNXTensorElementDataType to_element_type(DType dtype);

}  // namespace slipway::onnx
