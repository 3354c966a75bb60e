#include "declarations.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

// Field numbers are those of onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.

namespace slipway::onnx {
namespace {

using wire::append_bytes;
using wire::append_number;
using wire::Bytes;
using wire::Field;
using wire::Kind;
using wire::Reader;

constexpr unsigned kGraph = 7;
constexpr unsigned kInput = 11;

// Operators whose output is as large as what their inputs hold says.
bool is_sized_by_data(const Node& node) {
  static const char* const kSized[] = {"Compress", "If",     "Loop", "NonMaxSuppression",
                                       "NonZero",  "Unique", "Scan"};
  return std::find(std::begin(kSized), std::end(kSized), node.op) != std::end(kSized);
}

std::string name_of(Bytes value) {
  Reader reader(value);
  Field field;
  while (reader.next(&field)) {
    if (field.number == 1 && field.kind == Kind::kBytes) {
      return field.bytes.text();
    }
  }
  return "";
}

Bytes between(const std::uint8_t* begin, const std::uint8_t* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

// As several fields: Protocol Buffers merge a field that comes twice, and nothing is copied more than once.
void append_graph(Bytes message, const Graph& graph, const std::vector<std::string>& inputs,
                  std::string* model) {
  Reader reader(message);
  Field field;
  const std::uint8_t* kept = reader.at();
  for (const std::uint8_t* begin = kept; reader.next(&field); begin = reader.at()) {
    const std::string name = field.number == kInput && field.kind == Kind::kBytes ? name_of(field.bytes) : "";
    if (name.empty() || std::find(inputs.begin(), inputs.end(), name) == inputs.end()) {
      continue;
    }
    append_bytes(kGraph, between(kept, begin), model);
    std::string input;
    append_bytes(kInput, value_info(name, *graph.value(name)), &input);
    append_bytes(kGraph, input, model);
    kept = reader.at();
  }
  append_bytes(kGraph, between(kept, message.data + message.size), model);
}

}  // namespace

std::string value_info(const std::string& name, const Value& value) {
  std::string shape;
  for (const std::int64_t size : value.shape) {
    std::string dimension;
    append_number(1, size, &dimension);
    append_bytes(1, dimension, &shape);
  }
  std::string tensor;
  append_number(1, to_element_type(value.dtype), &tensor);  // ONNX Runtime numbers types as onnx.proto does
  append_bytes(2, shape, &tensor);
  std::string type;
  append_bytes(1, tensor, &type);
  std::string info;
  append_bytes(1, name, &info);
  append_bytes(2, type, &info);
  return info;
}

std::vector<std::string> fix_inputs(const std::vector<Shape>& shapes, Graph* graph) {
  std::vector<std::string> fixed;
  for (std::size_t i = 0; i < shapes.size() && i < graph->inputs.size(); ++i) {
    Value& value = graph->values[graph->inputs[i]];
    if (value.dtype != DType::kUnknown && (!value.has_rank || value.shape != shapes[i])) {
      value.has_rank = true;
      value.shape = shapes[i];
      fixed.push_back(graph->inputs[i]);
    }
  }
  const bool by_data = std::any_of(graph->nodes.begin(), graph->nodes.end(), is_sized_by_data);
  for (auto& [name, value] : graph->values) {
    value.outdated = !fixed.empty() && !by_data;
  }
  return fixed;
}

std::string with_inputs(Bytes model, const Graph& graph, const std::vector<std::string>& inputs) {
  std::string written;
  written.reserve(model.size + 1024);
  Reader reader(model);
  Field field;
  for (const std::uint8_t* begin = reader.at(); reader.next(&field); begin = reader.at()) {
    if (field.number == kGraph && field.kind == Kind::kBytes) {
      append_graph(field.bytes, graph, inputs, &written);
    } else {
      written += between(begin, reader.at()).text();
    }
  }
  return written;
}

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

namespace slipway::wire {
namespace {

void append_varint(std::uint64_t value, std::string* bytes) {
  while (value >= 0x80) {
    bytes->push_back(static_cast<char>(0x80 | (value & 0x7F)));
    value >>= 7;
  }
  bytes->push_back(static_cast<char>(value));
}

}  // namespace

bool Reader::fail() {
  failed_ = true;
  return false;
}

bool Reader::varint(std::uint64_t* value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (ended()) {
      return fail();
    }
    const std::uint8_t byte = *next_++;
    *value |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80u) == 0) {
      return true;
    }
  }
  return fail();
}

bool Reader::fixed(std::size_t size, std::uint64_t* value) {
  if (static_cast<std::size_t>(end_ - next_) < size) {
    return fail();
  }
  *value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    *value |= std::uint64_t{*next_++} << (8 * i);
  }
  return true;
}

bool Reader::next(Field* field) {
  if (failed_ || ended()) {
    return false;
  }
  std::uint64_t tag = 0;
  if (!varint(&tag) || tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) {
    return fail();
  }
  *field = {};
  field->number = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7u) {
    case 0:
      return varint(&field->value);
    case 1:
      field->kind = Kind::kFixed64;
      return fixed(8, &field->value);
    case 5:
      field->kind = Kind::kFixed32;
      return fixed(4, &field->value);
    case 2: {
      field->kind = Kind::kBytes;
      std::uint64_t size = 0;
      if (!varint(&size) || size > static_cast<std::uint64_t>(end_ - next_)) {
        return fail();
      }
      field->bytes = {next_, static_cast<std::size_t>(size)};
      next_ += size;
      return true;
    }
    default:  // groups, which no ONNX message has, and what is no wire type
      return fail();
  }
}

bool append_integers(const Field& field, std::vector<std::int64_t>* numbers) {
  if (field.kind == Kind::kVarint) {
    numbers->push_back(field.integer());
    return true;
  }
  if (field.kind != Kind::kBytes) {
    return false;
  }
  Reader packed(field.bytes);
  std::uint64_t value = 0;
  while (!packed.ended() && packed.varint(&value)) {
    numbers->push_back(static_cast<std::int64_t>(value));
  }
  return !packed.failed();
}

void append_bytes(unsigned number, Bytes content, std::string* message) {
  append_varint(number << 3 | 2, message);
  append_varint(content.size, message);
  message->append(reinterpret_cast<const char*>(content.data), content.size);
}

void append_bytes(unsigned number, const std::string& content, std::string* message) {
  append_bytes(number, {reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}, message);
}

void append_number(unsigned number, std::int64_t value, std::string* message) {
  append_varint(number << 3, message);
  append_varint(static_cast<std::uint64_t>(value), message);
}

}  // namespace slipway::wire
