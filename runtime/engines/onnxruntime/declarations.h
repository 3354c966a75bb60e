// What a model declares of its inputs, written anew: in sizes that are fixed for one session, or of constants
// that a caller may replace.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graph.h"
#include "slipway/tensor.h"

// Protocol Buffers' wire format, read in place and written: enough to look through an .onnx file, and to
// change its declarations, without its library. https://protobuf.dev/programming-guides/encoding/

namespace slipway::wire {

struct Bytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;

  std::string text() const { return {reinterpret_cast<const char*>(data), size}; }
};

enum class Kind : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field of a message: its number, and its value as the wire type has it.
struct Field {
  std::uint32_t number = 0;
  Kind kind = Kind::kVarint;
  std::uint64_t value = 0;  // kVarint, kFixed64, kFixed32
  Bytes bytes;              // kBytes

  std::int64_t integer() const { return static_cast<std::int64_t>(value); }
};

// The fields of one message in the file's order. After next() returned false, failed() tells a damaged
// message from one that is at its end.
class Reader {
 public:
  explicit Reader(Bytes message) : next_(message.data), end_(message.data + message.size) {}

  bool next(Field* field);
  // A number without a tag, of packed ones.
  bool varint(std::uint64_t* value);
  bool ended() const { return next_ == end_; }
  bool failed() const { return failed_; }
  // Where the next field begins.
  const std::uint8_t* at() const { return next_; }

 private:
  bool fail();
  bool fixed(std::size_t size, std::uint64_t* value);

  const std::uint8_t* next_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

// The numbers of a repeated field's one occurrence, packed or single. False when it is damaged.
bool append_integers(const Field& field, std::vector<std::int64_t>* numbers);

// Add a field to a message that is being written.
void append_bytes(unsigned number, Bytes content, std::string* message);
void append_bytes(unsigned number, const std::string& content, std::string* message);
void append_number(unsigned number, std::int64_t value, std::string* message);

}  // namespace slipway::wire

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
