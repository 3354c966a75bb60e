#include "ort_file.h"

#include <cstring>
#include <utility>

#include "flat_table.h"
#include "scalar_types.h"

// The numbers are the members' indices in ONNX Runtime's schema of this format, as the readers in its Python
// package have them (onnxruntime/tools/ort_format_model).

namespace slipway::onnx {
namespace {

using flat::Buffer;
using flat::Table;
using flat::Vector;

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
    const Vector integers = entry.vector(22);
    for (std::size_t k = 0; k < integers.size() && !buffer->failed; ++k) {
      attribute.integers.push_back(integers.integer(k));
    }
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
    node.index = entry.number<std::uint32_t>(12);
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
