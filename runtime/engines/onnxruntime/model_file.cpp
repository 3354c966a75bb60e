#include "model_file.h"

#include <cstring>
#include <utility>

#include "base/platform.h"
#include "declarations.h"
#include "provider_faults.h"

namespace slipway::onnx {
namespace {

// FlatBuffers' layout, read in place with every offset checked against the file's end.
// https://flatbuffers.dev/internals/

// The file and what went wrong with it. Readers return empty things after a failure; the caller asks in the
// end.
struct Buffer {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  bool failed = false;

  template <typename T>
  T at(std::size_t offset) {
    T value{};
    if (offset > size || size - offset < sizeof(T)) {
      failed = true;
    } else {
      std::memcpy(&value, data + offset, sizeof(T));
    }
    return value;
  }
  // Where the offset stored at `place` leads to; 0, which nothing lies at, when it leads out of the file.
  std::size_t follow(std::size_t place);
  std::string text(std::size_t place);
};

class Vector;

// A table; without one (position 0) every member is at its default.
class Table {
 public:
  Table(Buffer* buffer, std::size_t position) : buffer_(buffer), position_(position) {}

  static Table root(Buffer* buffer) { return {buffer, buffer->follow(0)}; }
  bool exists() const { return position_ != 0; }

  // `slot` is the member's offset in the vtable, as generated code has it: 4, 6, 8, ...
  template <typename T>
  T number(std::uint16_t slot) const {
    const std::size_t place = find(slot);
    return place == 0 ? T{} : buffer_->at<T>(place);
  }
  std::string text(std::uint16_t slot) const;
  Table table(std::uint16_t slot) const;
  Vector vector(std::uint16_t slot) const;

 private:
  std::size_t find(std::uint16_t slot) const;

  Buffer* buffer_;
  std::size_t position_;
};

class Vector {
 public:
  Vector(Buffer* buffer, std::size_t position);

  std::size_t size() const { return size_; }
  Table table(std::size_t index) const { return {buffer_, buffer_->follow(place(index))}; }
  std::string text(std::size_t index) const { return buffer_->text(place(index)); }

 private:
  std::size_t place(std::size_t index) const { return position_ + 4 + index * 4; }

  Buffer* buffer_;
  std::size_t position_;
  std::size_t size_ = 0;
};

std::size_t Buffer::follow(std::size_t place) {
  const auto offset = at<std::uint32_t>(place);
  if (failed || offset == 0 || offset > size - place) {
    failed = true;
    return 0;
  }
  return place + offset;
}

std::string Buffer::text(std::size_t place) {
  const std::size_t position = follow(place);
  const auto length = at<std::uint32_t>(position);
  if (failed || length > size - position - 4) {
    failed = true;
    return "";
  }
  return {reinterpret_cast<const char*>(data + position + 4), length};
}

std::size_t Table::find(std::uint16_t slot) const {
  if (position_ == 0) {
    return 0;
  }
  // The vtable lies at a signed distance before the table.
  const std::int64_t vtable = static_cast<std::int64_t>(position_) - buffer_->at<std::int32_t>(position_);
  if (buffer_->failed || vtable < 0) {
    buffer_->failed = true;
    return 0;
  }
  const auto start = static_cast<std::size_t>(vtable);
  if (slot >= buffer_->at<std::uint16_t>(start)) {
    return 0;
  }
  const auto offset = buffer_->at<std::uint16_t>(start + slot);
  return buffer_->failed || offset == 0 ? 0 : position_ + offset;
}

std::string Table::text(std::uint16_t slot) const {
  const std::size_t place = find(slot);
  return place == 0 ? "" : buffer_->text(place);
}

Table Table::table(std::uint16_t slot) const {
  const std::size_t place = find(slot);
  return {buffer_, place == 0 ? 0 : buffer_->follow(place)};
}

Vector Table::vector(std::uint16_t slot) const {
  const std::size_t place = find(slot);
  return {buffer_, place == 0 ? 0 : buffer_->follow(place)};
}

Vector::Vector(Buffer* buffer, std::size_t position) : buffer_(buffer), position_(position) {
  if (position == 0) {
    return;
  }
  size_ = buffer->at<std::uint32_t>(position);
  if (buffer->failed || size_ > (buffer->size - position) / 4) {
    buffer->failed = true;
    size_ = 0;
  }
}

constexpr int kDeepestOrt = 32;

std::string domain_of(const Table& table, std::uint16_t slot) {
  std::string domain = table.text(slot);
  return domain == "ai.onnx" ? "" : domain;
}

Value value_of(const Table& type) {
  Value value;
  const auto kind = type.number<std::uint8_t>(6);
  if (kind != 1) {
    value.kind = kind == 2 ? "sequence" : kind == 3 ? "map" : "unknown";
    return value;
  }
  const Table tensor = type.table(8);
  value.dtype = from_proto(tensor.number<std::int32_t>(4));
  const Table shape = tensor.table(6);
  value.has_rank = shape.exists();
  const Vector dimensions = shape.vector(4);
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const Table size = dimensions.table(i).table(4);
    value.shape.push_back(size.number<std::int8_t>(4) == 1 ? size.number<std::int64_t>(6) : -1);
  }
  return value;
}

struct OrtParser {
  Buffer* buffer;
  Graph graph;

  void model(const Table& model);
  void nodes(const Table& from, std::vector<Node>* to, int depth);
  void attributes(const Table& from, Node* node, int depth);
};

void OrtParser::attributes(const Table& from, Node* node, int depth) {
  const Vector list = from.vector(24);
  for (std::size_t i = 0; i < list.size() && !buffer->failed; ++i) {
    const Table entry = list.table(i);
    Attribute attribute;
    attribute.number = entry.number<float>(10);
    attribute.integer = entry.number<std::int64_t>(12);
    attribute.text = entry.text(14);
    node->attributes[entry.text(4)] = std::move(attribute);
    const Table branch = entry.table(18);
    if (branch.exists()) {
      nodes(branch, &graph.inner_nodes, depth + 1);
    }
    const Vector branches = entry.vector(28);
    for (std::size_t k = 0; k < branches.size() && !buffer->failed; ++k) {
      nodes(branches.table(k), &graph.inner_nodes, depth + 1);
    }
  }
}

void OrtParser::nodes(const Table& from, std::vector<Node>* to, int depth) {
  const Vector list = from.vector(8);
  if (depth > kDeepestOrt) {
    buffer->failed = true;
  }
  for (std::size_t i = 0; i < list.size() && !buffer->failed; ++i) {
    const Table entry = list.table(i);
    Node node;
    node.name = entry.text(4);
    node.domain = domain_of(entry, 8);
    node.op = entry.text(14);
    const Vector inputs = entry.vector(20);
    for (std::size_t k = 0; k < inputs.size() && !buffer->failed; ++k) {
      node.inputs.push_back(inputs.text(k));
    }
    const Vector outputs = entry.vector(22);
    for (std::size_t k = 0; k < outputs.size() && !buffer->failed; ++k) {
      node.outputs.push_back(outputs.text(k));
    }
    attributes(entry, &node, depth);
    to->push_back(std::move(node));
  }
}

void OrtParser::model(const Table& model) {
  graph.ir_version = model.number<std::int64_t>(4);
  const Vector opsets = model.vector(6);
  for (std::size_t i = 0; i < opsets.size() && !buffer->failed; ++i) {
    graph.opsets[domain_of(opsets.table(i), 4)] = opsets.table(i).number<std::int64_t>(6);
  }
  const Table main = model.table(18);
  const Vector initializers = main.vector(4);
  for (std::size_t i = 0; i < initializers.size() && !buffer->failed; ++i) {
    graph.constants.insert(initializers.table(i).text(4));
  }
  const Vector values = main.vector(6);
  for (std::size_t i = 0; i < values.size() && !buffer->failed; ++i) {
    graph.values[values.table(i).text(4)] = value_of(values.table(i).table(8));
  }
  const Vector inputs = main.vector(14);
  for (std::size_t i = 0; i < inputs.size() && !buffer->failed; ++i) {
    if (graph.constants.count(inputs.text(i)) == 0) {
      graph.inputs.push_back(inputs.text(i));
    }
  }
  const Vector outputs = main.vector(16);
  for (std::size_t i = 0; i < outputs.size() && !buffer->failed; ++i) {
    graph.outputs.push_back(outputs.text(i));
  }
  nodes(main, &graph.nodes, 0);
}

}  // namespace

Result<Model> read_model(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  SLIPWAY_RETURN_IF_ERROR(file);
  const std::uint8_t* data = file.value().data();
  Model model;
  model.size = file.value().size();
  model.format = is_ort(data, file.value().size()) ? Format::kOrt : Format::kOnnx;
  const auto read = model.format == Format::kOrt ? read_ort : read_onnx;
  Result<Graph> graph = read(data, file.value().size(), path);
  SLIPWAY_RETURN_IF_ERROR(graph);
  model.graph = std::move(graph.value());
  return std::move(model);
}

ProgramInfo program_info(const Model& model) {
  ProgramInfo info;
  info.size = model.size;
  info.version = static_cast<std::uint64_t>(model.graph.ir_version);
  for (const auto& [domain, version] : model.graph.opsets) {
    info.opsets.emplace_back(domain.empty() ? "ai.onnx" : domain, version);
  }
  info.data_files = model.graph.data_files;
  MethodInfo method = method_of(model.graph);
  method.backends = {kCpu};  // it runs what the XNNPACK provider leaves
  info.methods.push_back(std::move(method));
  return info;
}

bool is_ort(const std::uint8_t* data, std::size_t size) {
  return size >= 8 && std::memcmp(data + 4, "ORTM", 4) == 0;
}

Result<Graph> read_ort(const std::uint8_t* data, std::size_t size, const std::string& path) {
  Buffer buffer{data, size, false};
  OrtParser parser{&buffer, {}};
  parser.model(Table::root(&buffer).table(6));
  if (buffer.failed || parser.graph.ir_version <= 0 || parser.graph.nodes.empty()) {
    return Status(Code::kFile,
                  path + " is cut short or damaged: ONNX Runtime's format (.ort) with offsets out of it.",
                  "copy the file again, or convert the model again", {path});
  }
  return std::move(parser.graph);
}

}  // namespace slipway::onnx
