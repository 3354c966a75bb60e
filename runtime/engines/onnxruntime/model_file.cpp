#include "model_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/platform.h"
#include "declarations.h"
#include "provider_faults.h"

// Field numbers are those of onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.

namespace slipway::onnx {
namespace {

using wire::Bytes;
using wire::Field;
using wire::Kind;
using wire::Reader;

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

bool read_dimension(Bytes message, Shape* shape) {
  std::int64_t size = -1;
  const bool whole = for_each(message, [&](const Field& field) {
    if (field.number == 1 && field.kind == Kind::kVarint) {
      size = field.integer();
    }
    return true;
  });
  shape->push_back(size);
  return whole;
}

// TypeProto.Tensor
bool read_tensor_type(Bytes message, Value* value) {
  return for_each(message, [&](const Field& field) {
    if (field.number == 1) {
      value->dtype = from_proto(field.integer());
    } else if (field.number == 2 && is_bytes(field)) {
      value->has_rank = true;
      return for_each(field.bytes, [&](const Field& dimension) {
        return dimension.number != 1 || !is_bytes(dimension) ||
               read_dimension(dimension.bytes, &value->shape);
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

// Of a tensor of one element, what its message holds in one of three fields.
struct OneNumber {
  Bytes raw;
  bool has_float = false;
  float real = 0;
  std::vector<std::int64_t> integers;

  void take(const Field& field);
  void give(Value* value) const;
};

void OneNumber::take(const Field& field) {
  constexpr std::size_t kLongestVarint = 10;
  if (field.number == 4 && is_bytes(field)) {
    raw = field.bytes;  // packed floats are stored as in raw_data
  } else if (field.number == 4 && field.kind == Kind::kFixed32) {
    const auto bits = static_cast<std::uint32_t>(field.value);
    std::memcpy(&real, &bits, sizeof(bits));
    has_float = true;
  } else if (field.number == 5 && integers.size() < 2 && field.bytes.size <= kLongestVarint) {
    wire::append_integers(field, &integers);
  } else if (field.number == 9 && is_bytes(field)) {
    raw = field.bytes;
  }
}

void OneNumber::give(Value* value) const {
  if (value->dtype == DType::kFloat32 && raw.size == sizeof(float)) {
    float number = 0;
    std::memcpy(&number, raw.data, sizeof(number));
    value->number = number;
  } else if (value->dtype == DType::kFloat32 && has_float) {
    value->number = real;
  } else if (value->dtype == DType::kInt8 && raw.size == 1) {
    value->number = static_cast<std::int8_t>(raw.data[0]);
  } else if (value->dtype == DType::kUInt8 && raw.size == 1) {
    value->number = raw.data[0];
  } else if (raw.size == 0 && integers.size() == 1) {
    value->number = static_cast<double>(integers.front());
  } else {
    return;
  }
  value->has_number = true;
}

bool OnnxParser::initializer(Bytes message) {
  std::string name;
  Value value;
  value.has_rank = true;
  OneNumber one;
  const bool whole = for_each(message, [&](const Field& field) {
    if (field.number == 1) {
      return wire::append_integers(field, &value.shape);
    }
    one.take(field);
    if (field.number == 2) {
      value.dtype = from_proto(field.integer());
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
  one.give(&value);
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

ProgramInfo program_info(const Graph& graph, std::uint64_t size) {
  ProgramInfo info;
  info.size = size;
  info.version = static_cast<std::uint64_t>(graph.ir_version);
  for (const auto& [domain, version] : graph.opsets) {
    info.opsets.emplace_back(domain.empty() ? "ai.onnx" : domain, version);
  }
  info.data_files = graph.data_files;
  MethodInfo method = method_of(graph);
  method.backends = {kCpu};  // it runs what the XNNPACK provider leaves
  info.methods.push_back(std::move(method));
  return info;
}

}  // namespace slipway::onnx
