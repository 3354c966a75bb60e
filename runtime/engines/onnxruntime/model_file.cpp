#include <algorithm>
#include <cstring>
#include <optional>
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
};

enum class Kind : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field of a message: its number, and its value as the wire type has it.
struct Field {
  std::uint32_t number = 0;
  Kind kind = Kind::kVarint;
  std::uint64_t value = 0;  // kVarint, kFixed64, kFixed32
  Bytes bytes;              // kBytes
};

// Takes what it reads from the front of the bytes; false when they are damaged.
bool read_varint(Bytes* bytes, std::uint64_t* value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && bytes->size != 0; shift += 7) {
    const std::uint8_t byte = *bytes->data++;
    --bytes->size;
    *value |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80u) == 0) {
      return true;
    }
  }
  return false;
}

bool read_field(Bytes* bytes, Field* field) {
  std::uint64_t tag = 0;
  if (!read_varint(bytes, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) {
    return false;
  }
  *field = {static_cast<std::uint32_t>(tag >> 3), static_cast<Kind>(tag & 7u), 0, {}};
  if (field->kind == Kind::kVarint) {
    return read_varint(bytes, &field->value);
  }
  std::uint64_t size = field->kind == Kind::kFixed64 ? 8 : 4;
  const bool known =
      field->kind == Kind::kBytes ? read_varint(bytes, &size) : (tag & 7u) == 1 || (tag & 7u) == 5;
  if (!known || size > bytes->size) {
    return false;  // groups, too, which no ONNX message has
  }
  field->bytes = {bytes->data, static_cast<std::size_t>(size)};
  for (std::size_t i = 0; field->kind != Kind::kBytes && i < field->bytes.size; ++i) {
    field->value |= std::uint64_t{bytes->data[i]} << (8 * i);
  }
  bytes->data += field->bytes.size;
  bytes->size -= field->bytes.size;
  return true;
}

// A message, gone through from its beginning for each question: nothing is kept of what nobody asks for. Of
// fields that come once the last one counts. `whole` is that of all messages of a file: false as soon as one
// is damaged, or has a field of another kind than it is asked for.
class Message {
 public:
  Message(Bytes bytes, bool* whole) : bytes_(bytes), whole_(whole) {}

  std::vector<Message> messages(std::uint32_t number) const {
    std::vector<Message> found;
    each(number, Kind::kBytes, [&](const Field& field) { found.emplace_back(field.bytes, whole_); });
    return found;
  }
  std::vector<std::string> texts(std::uint32_t number) const {
    std::vector<std::string> found;
    each(number, Kind::kBytes, [&](const Field& field) {
      found.emplace_back(reinterpret_cast<const char*>(field.bytes.data), field.bytes.size);
    });
    return found;
  }
  std::string text(std::uint32_t number) const {
    const std::vector<std::string> found = texts(number);
    return found.empty() ? "" : found.back();
  }
  std::int64_t integer(std::uint32_t number, std::int64_t otherwise = 0) const {
    each(number, Kind::kVarint,
         [&](const Field& field) { otherwise = static_cast<std::int64_t>(field.value); });
    return otherwise;
  }
  float real(std::uint32_t number) const {
    float found = 0;
    each(number, Kind::kFixed32, [&](const Field& field) {
      const auto bits = static_cast<std::uint32_t>(field.value);
      std::memcpy(&found, &bits, sizeof(bits));
    });
    return found;
  }
  // Packed, or each by itself.
  std::vector<std::int64_t> integers(std::uint32_t number) const {
    std::vector<std::int64_t> found;
    each(number, {}, [&](Field field) {
      const bool single = field.kind == Kind::kVarint;
      if (single) {
        found.push_back(static_cast<std::int64_t>(field.value));
      }
      while (!single && *whole_ && field.bytes.size != 0) {
        *whole_ = field.kind == Kind::kBytes && read_varint(&field.bytes, &field.value);
        found.push_back(static_cast<std::int64_t>(field.value));
      }
    });
    return found;
  }
  void refuse() const { *whole_ = false; }

 private:
  // Calls `use` with each field of the number; without a kind, with those of every kind.
  template <typename Use>
  void each(std::uint32_t number, std::optional<Kind> kind, Use use) const {
    Field field;
    for (Bytes rest = bytes_; *whole_ && rest.size != 0;) {
      if (!read_field(&rest, &field) || (field.number == number && kind && field.kind != *kind)) {
        *whole_ = false;
      } else if (field.number == number) {
        use(field);
      }
    }
  }

  Bytes bytes_;
  bool* whole_;
};

// Branches within branches; a file that goes deeper is meant to do harm.
constexpr int kDeepestOnnx = 32;

// "" is ai.onnx.
std::string domain_in(const Message& message, std::uint32_t number) {
  std::string domain = message.text(number);
  return domain == "ai.onnx" ? "" : domain;
}

// ValueInfoProto
Value read_value(const Message& message) {
  constexpr std::pair<std::uint32_t, const char*> kKinds[] = {
      {4, "sequence"}, {5, "map"}, {8, "sparse_tensor"}, {9, "optional"}};
  Value value;
  for (const Message& type : message.messages(2)) {
    for (const auto& [number, kind] : kKinds) {
      value.kind = type.messages(number).empty() ? value.kind : kind;
    }
    for (const Message& tensor : type.messages(1)) {
      value.dtype = to_dtype(tensor.integer(1));
      for (const Message& shape : tensor.messages(2)) {
        value.has_rank = true;
        for (const Message& dimension : shape.messages(1)) {
          value.shape.push_back(dimension.integer(1, -1));
          value.size_names.push_back(dimension.text(2));
        }
      }
    }
  }
  return value;
}

// TensorProto
void read_initializer(const Message& message, Graph* graph) {
  const std::string name = message.text(8);
  Value& value = graph->values[name] = {};
  value.has_rank = true;
  value.shape = message.integers(1);
  value.dtype = to_dtype(message.integer(2));
  graph->constants.insert(name);
  for (const Message& entry : message.messages(13)) {
    if (entry.text(1) == "location") {
      graph->data_files.push_back(entry.text(2));
    }
  }
}

// NodeProto. The nodes of its branches go to the graph's inner ones.
Node read_node(const Message& message, int depth, Graph* graph) {
  Node node{message.text(3), message.text(4), domain_in(message, 7), message.texts(1), message.texts(2), {}};
  for (const Message& attribute : message.messages(5)) {
    node.attributes[attribute.text(1)] = {attribute.integer(3), attribute.real(2), attribute.text(4)};
    for (const std::uint32_t number : {6U, 11U}) {
      for (const Message& branch : attribute.messages(number)) {
        if (depth == kDeepestOnnx) {
          branch.refuse();
        }
        for (const Message& inner : branch.messages(1)) {
          graph->inner_nodes.push_back(read_node(inner, depth + 1, graph));
        }
      }
    }
  }
  return node;
}

// GraphProto
void read_graph(const Message& message, Graph* graph) {
  for (const Message& node : message.messages(1)) {
    graph->nodes.push_back(read_node(node, 0, graph));
  }
  for (const Message& initializer : message.messages(5)) {
    read_initializer(initializer, graph);
  }
  for (const std::uint32_t number : {11U, 12U, 13U}) {
    for (const Message& value : message.messages(number)) {
      const std::string name = value.text(1);
      graph->values[name] = read_value(value);
      if (number == 12) {
        graph->outputs.push_back(name);
      } else if (number == 11 && graph->constants.count(name) == 0) {
        graph->inputs.push_back(name);
      } else if (number == 11 && graph->ir_version >= 4) {
        // An initializer that is an input too is that input's default: callers need not give it, but may.
        graph->constants.erase(name);
      }
    }
  }
}

// ModelProto
Graph read_model_message(const Message& message) {
  Graph graph;
  graph.ir_version = message.integer(1);
  for (const Message& set : message.messages(8)) {
    graph.opsets[domain_in(set, 1)] = set.integer(2);
  }
  for (const Message& function : message.messages(25)) {
    Node itself;
    itself.op = function.text(1);
    itself.domain = function.text(10);
    graph.functions.insert(itself.full_op());
    for (const Message& node : function.messages(7)) {
      graph.inner_nodes.push_back(read_node(node, 0, &graph));
    }
  }
  for (const Message& main : message.messages(7)) {
    read_graph(main, &graph);
  }
  return graph;
}

}  // namespace

Result<Graph> read_onnx(const std::uint8_t* data, std::size_t size, const std::string& path) {
  bool whole = true;
  Graph graph = read_model_message({{data, size}, &whole});
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
  return graph;
}

bool is_ort(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  return file.ok() && file.value().size() >= 8 && std::memcmp(file.value().data() + 4, "ORTM", 4) == 0;
}

Result<Graph> read_model(const std::string& path) {
  SLIPWAY_TRY(const MappedFile file, MappedFile::open(path));
  return read_onnx(file.data(), file.size(), path);
}

}  // namespace slipway::onnx
