#include <algorithm>
#include <cstring>
#include <utility>

#include "base/platform.h"
#include "graph.h"

// Field numbers are those of onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.

namespace slipway::onnx {
namespace {

// Protocol Buffers' wire format, read in place: enough to look through an .onnx file without its library.
// https://protobuf.dev/programming-guides/encoding/

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

 private:
  bool fail();
  bool fixed(std::size_t size, std::uint64_t* value);

  const std::uint8_t* next_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

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

// Adds the numbers of a repeated field's one occurrence, packed or single. False when it is damaged.
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

// Branches within branches; a file that goes deeper is meant to do harm.
constexpr int kDeepestOnnx = 32;

struct OnnxParser {
  Graph graph;

  bool model(Bytes message);
  bool opset(Bytes message);
  bool function(Bytes message, int depth);
  bool main_graph(Bytes message);
  bool inner_graph(Bytes message, int depth);
  bool node(Bytes message, Node* node, int depth);
  bool attribute(Bytes message, std::pair<std::string, Attribute>* attribute, int depth);
  bool initializer(Bytes message);
  bool value(Bytes message, std::string* name);
};

bool is_bytes(const Field& field) {
  return field.kind == Kind::kBytes;
}

// Calls `each` with every field of the message; false when it is damaged or `each` says so.
template <typename Each>
bool for_each(Bytes message, Each each) {
  Reader reader(message);
  Field field;
  while (reader.next(&field)) {
    if (!each(field)) {
      return false;
    }
  }
  return !reader.failed();
}

bool read_dimension(Bytes message, Value* value) {
  std::int64_t size = -1;
  std::string name;
  const bool whole = for_each(message, [&](const Field& field) {
    if (field.number == 1 && field.kind == Kind::kVarint) {
      size = field.integer();
    } else if (field.number == 2 && is_bytes(field)) {
      name = field.bytes.text();
    }
    return true;
  });
  value->shape.push_back(size);
  value->size_names.push_back(std::move(name));
  return whole;
}

// TypeProto.Tensor
bool read_tensor_type(Bytes message, Value* value) {
  return for_each(message, [&](const Field& field) {
    if (field.number == 1) {
      value->dtype = to_dtype(field.integer());
    } else if (field.number == 2 && is_bytes(field)) {
      value->has_rank = true;
      return for_each(field.bytes, [&](const Field& dimension) {
        return dimension.number != 1 || !is_bytes(dimension) || read_dimension(dimension.bytes, value);
      });
    }
    return true;
  });
}

// TypeProto
bool read_type(Bytes message, Value* value) {
  return for_each(message, [&](const Field& field) {
    switch (is_bytes(field) ? field.number : 0) {
      case 1:
        value->kind = "tensor";
        return read_tensor_type(field.bytes, value);
      case 4:
        value->kind = "sequence";
        return true;
      case 5:
        value->kind = "map";
        return true;
      case 8:
        value->kind = "sparse_tensor";
        return true;
      case 9:
        value->kind = "optional";
        return true;
      default:
        return true;
    }
  });
}

bool OnnxParser::value(Bytes message, std::string* name) {
  Value value;
  const bool whole = for_each(message, [&](const Field& field) {
    if (field.number == 1 && is_bytes(field)) {
      *name = field.bytes.text();
    } else if (field.number == 2 && is_bytes(field)) {
      return read_type(field.bytes, &value);
    }
    return true;
  });
  graph.values[*name] = std::move(value);
  return whole;
}

bool OnnxParser::initializer(Bytes message) {
  std::string name;
  Value value;
  value.has_rank = true;
  const bool whole = for_each(message, [&](const Field& field) {
    if (field.number == 1) {
      return append_integers(field, &value.shape);
    }
    if (field.number == 2) {
      value.dtype = to_dtype(field.integer());
    } else if (field.number == 8 && is_bytes(field)) {
      name = field.bytes.text();
    } else if (field.number == 13 && is_bytes(field)) {
      std::string key;
      std::string text;
      const bool good = for_each(field.bytes, [&](const Field& entry) {
        (entry.number == 1 ? key : text) = entry.bytes.text();
        return is_bytes(entry);
      });
      if (key == "location") {
        graph.data_files.push_back(text);
      }
      return good;
    }
    return true;
  });
  graph.constants.insert(name);
  graph.values[name] = std::move(value);
  return whole;
}

bool OnnxParser::attribute(Bytes message, std::pair<std::string, Attribute>* attribute, int depth) {
  return for_each(message, [&](const Field& field) {
    Attribute& value = attribute->second;
    switch (field.number) {
      case 1:
        attribute->first = field.bytes.text();
        return is_bytes(field);
      case 2: {
        const auto bits = static_cast<std::uint32_t>(field.value);
        std::memcpy(&value.number, &bits, sizeof(bits));
        return field.kind == Kind::kFixed32;
      }
      case 3:
        value.integer = field.integer();
        return field.kind == Kind::kVarint;
      case 4:
        value.text = field.bytes.text();
        return is_bytes(field);
      case 6:
      case 11:
        return is_bytes(field) && inner_graph(field.bytes, depth + 1);
      default:
        return true;
    }
  });
}

bool OnnxParser::node(Bytes message, Node* node, int depth) {
  return for_each(message, [&](const Field& field) {
    if (field.number >= 1 && field.number <= 7 && !is_bytes(field)) {
      return false;
    }
    switch (field.number) {
      case 1:
        node->inputs.push_back(field.bytes.text());
        return true;
      case 2:
        node->outputs.push_back(field.bytes.text());
        return true;
      case 3:
        node->name = field.bytes.text();
        return true;
      case 4:
        node->op = field.bytes.text();
        return true;
      case 5: {
        std::pair<std::string, Attribute> read;
        const bool whole = attribute(field.bytes, &read, depth);
        node->attributes.insert(std::move(read));
        return whole;
      }
      case 7:
        node->domain = field.bytes.text();
        if (node->domain == "ai.onnx") {
          node->domain.clear();
        }
        return true;
      default:
        return true;
    }
  });
}

bool OnnxParser::inner_graph(Bytes message, int depth) {
  return depth <= kDeepestOnnx && for_each(message, [&](const Field& field) {
           if (field.number != 1 || !is_bytes(field)) {
             return true;
           }
           Node read;
           const bool whole = node(field.bytes, &read, depth);
           graph.inner_nodes.push_back(std::move(read));
           return whole;
         });
}

bool OnnxParser::function(Bytes message, int depth) {
  Node itself;
  const bool whole = for_each(message, [&](const Field& field) {
    if (field.number == 1 && is_bytes(field)) {
      itself.op = field.bytes.text();
    } else if (field.number == 10 && is_bytes(field)) {
      itself.domain = field.bytes.text();
    } else if (field.number == 7 && is_bytes(field)) {
      Node read;
      const bool good = node(field.bytes, &read, depth);
      graph.inner_nodes.push_back(std::move(read));
      return good;
    }
    return true;
  });
  graph.functions.insert(itself.full_op());
  return whole;
}

bool OnnxParser::main_graph(Bytes message) {
  std::vector<std::string> declared;
  const bool whole = for_each(message, [&](const Field& field) {
    std::string name;
    if (!is_bytes(field)) {
      return true;
    }
    switch (field.number) {
      case 1: {
        Node read;
        const bool good = node(field.bytes, &read, 0);
        graph.nodes.push_back(std::move(read));
        return good;
      }
      case 5:
        return initializer(field.bytes);
      case 11: {
        const bool good = value(field.bytes, &name);
        declared.push_back(name);
        return good;
      }
      case 12: {
        const bool good = value(field.bytes, &name);
        graph.outputs.push_back(name);
        return good;
      }
      case 13:
        return value(field.bytes, &name);
      default:
        return true;
    }
  });
  for (const std::string& name : declared) {
    if (graph.constants.count(name) == 0) {
      graph.inputs.push_back(name);
    } else if (graph.ir_version >= 4) {
      // An initializer that is an input too is that input's default: callers need not give it, but may.
      graph.constants.erase(name);
    }
  }
  return whole;
}

bool OnnxParser::opset(Bytes message) {
  std::string domain;
  std::int64_t version = 0;
  const bool whole = for_each(message, [&](const Field& field) {
    if (field.number == 1 && is_bytes(field)) {
      domain = field.bytes.text();
    } else if (field.number == 2) {
      version = field.integer();
    }
    return true;
  });
  graph.opsets[domain == "ai.onnx" ? "" : domain] = version;
  return whole;
}

bool OnnxParser::model(Bytes message) {
  return for_each(message, [&](const Field& field) {
    if (field.number == 1 && field.kind == Kind::kVarint) {
      graph.ir_version = field.integer();
    } else if (field.number == 7 && is_bytes(field)) {
      return main_graph(field.bytes);
    } else if (field.number == 8 && is_bytes(field)) {
      return opset(field.bytes);
    } else if (field.number == 25 && is_bytes(field)) {
      return function(field.bytes, 0);
    }
    return true;
  });
}

}  // namespace

Result<Graph> read_onnx(const std::uint8_t* data, std::size_t size, const std::string& path) {
  OnnxParser parser;
  const bool whole = parser.model({data, size});
  Graph& graph = parser.graph;
  if (!whole) {
    return Status(Code::kFile,
                  path + (graph.ir_version > 0 ? " is cut short or damaged: it does not end where it should."
                                               : " is not an ONNX model."),
                  "copy the file again, or export the model again", {path});
  }
  if (graph.ir_version <= 0 || graph.opsets.empty() || graph.nodes.empty()) {
    return Status(Code::kFile,
                  path + " is not an ONNX model: a version, an operator set or the nodes are missing.",
                  "give a file that torch.onnx.export or another exporter wrote", {path});
  }
  std::sort(graph.data_files.begin(), graph.data_files.end());
  graph.data_files.erase(std::unique(graph.data_files.begin(), graph.data_files.end()),
                         graph.data_files.end());
  propagate_constants(&graph);
  return std::move(graph);
}

bool is_ort(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  return file.ok() && file.value().size() >= 8 && std::memcmp(file.value().data() + 4, "ORTM", 4) == 0;
}

Result<Graph> read_model(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  SLIPWAY_RETURN_IF_ERROR(file);
  return read_onnx(file.value().data(), file.value().size(), path);
}

}  // namespace slipway::onnx
