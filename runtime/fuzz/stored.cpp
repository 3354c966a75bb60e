#include "stored.h"

#include <flatbuffers/flatbuffer_builder.h>
#include <flatbuffers/verifier.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "program_bfbs_generated.h"
#include "program_file.h"
#include "program_generated.h"
#include "xnnpack_runtime_bfbs_generated.h"
#include "xnnpack_runtime_generated.h"

namespace slipway::fuzz {
namespace {

constexpr std::size_t kIdentifier = 4;
constexpr char kBackend[] = "XnnpackBackend";

bool well_formed_graph(const std::uint8_t* graph, std::size_t size) {
  if (size < 2 * kIdentifier || size >= FLATBUFFERS_MAX_BUFFER_SIZE ||
      reinterpret_cast<std::uintptr_t>(graph) % sizeof(std::uint64_t) != 0) {
    return false;
  }
  flatbuffers::Verifier verifier(graph, size);
  return verifier.VerifyBuffer<xnn::XNNGraph>(nullptr);
}

// Finds the graph behind its header.
bool locate(const std::uint8_t* data, StoredGraph* found) {
  const std::uint8_t* payload = data + found->payload;
  found->graph = found->payload;
  found->graph_size = found->payload_size;
  if (found->payload_size >= kGraphHeader && std::memcmp(payload + 4, "XH00", 4) == 0) {
    const auto offset = number_at<std::uint32_t>(payload + kGraphOffset);
    const auto size = number_at<std::uint32_t>(payload + kGraphSize);
    if (offset > found->payload_size || size > found->payload_size - offset) {
      return false;
    }
    found->graph += offset;
    found->graph_size = size;
  }
  return well_formed_graph(data + found->graph, found->graph_size);
}

// Where a delegate's data lie.
bool locate_payload(const std::uint8_t* data, std::size_t size, const ProgramLayout& layout,
                    const pte::BackendDelegateDataReference& reference, StoredGraph* found) {
  const pte::Program& program = *pte::GetProgram(data);
  found->index = reference.index();
  found->in_segment = reference.location() == pte::DataLocation::SEGMENT;
  if (found->in_segment) {
    const auto* segments = program.segments();
    if (segments == nullptr || found->index >= segments->size()) {
      return false;
    }
    const pte::DataSegment& segment = *segments->Get(found->index);
    const std::uint64_t room = layout.segment_base <= size ? size - layout.segment_base : 0;
    found->payload = static_cast<std::size_t>(layout.segment_base + segment.offset());
    found->payload_size = static_cast<std::size_t>(segment.size());
    return segment.offset() <= room && segment.size() <= room - segment.offset();
  }
  const auto* items = program.backend_delegate_data();
  if (items == nullptr || found->index >= items->size() || items->Get(found->index)->data() == nullptr) {
    return false;
  }
  const auto* bytes = items->Get(found->index)->data();
  found->payload = static_cast<std::size_t>(bytes->data() - data);
  found->payload_size = bytes->size();
  return true;
}

using flatbuffers::uoffset_t;
using flatbuffers::voffset_t;
using Copies = std::map<const std::uint8_t*, std::vector<std::uint8_t>>;

constexpr std::size_t kDataAlignment = 16;
constexpr std::size_t kSegmentAlignment = 128;
constexpr std::size_t kInserted = kHeaderEnd - 8;

class Copier {
 public:
  // `replaced`: lists of bytes, by their first, that get another content.
  Copier(const reflection::Schema& schema, const Copies& replaced) : schema_(schema), replaced_(replaced) {
    builder_.ForceDefaults(true);
  }

  std::vector<std::uint8_t> run(const std::uint8_t* buffer, const char* identifier) {
    const uoffset_t root = table(*schema_.root_table(), follow(buffer));
    builder_.Finish(flatbuffers::Offset<flatbuffers::Table>(root), identifier);
    return {builder_.GetBufferPointer(), builder_.GetBufferPointer() + builder_.GetSize()};
  }

 private:
  const reflection::Object& object(std::int32_t index) const {
    return *schema_.objects()->Get(static_cast<uoffset_t>(index));
  }

  uoffset_t text(const std::uint8_t* address) {
    return builder_
        .CreateString(reinterpret_cast<const char*>(address + sizeof(uoffset_t)),
                      number_at<uoffset_t>(address))
        .o;
  }

  uoffset_t bytes(const std::uint8_t* first, std::size_t size) {
    builder_.ForceVectorAlignment(size, 1, kDataAlignment);
    return builder_.CreateVector(first, size).o;
  }

  uoffset_t list(const reflection::Type& type, const std::uint8_t* address) {
    const auto length = number_at<uoffset_t>(address);
    const std::uint8_t* first = address + sizeof(uoffset_t);
    if (type.element() == reflection::UByte) {
      const auto other = replaced_.find(first);
      return other == replaced_.end() ? bytes(first, length)
                                      : bytes(other->second.data(), other->second.size());
    }
    if (type.element() < reflection::String) {
      const std::size_t width = flatbuffers::GetTypeSize(type.element());
      std::uint8_t* to = nullptr;
      const uoffset_t made = builder_.CreateUninitializedVector(length, width, width, &to);
      std::copy_n(first, length * width, to);
      return made;
    }
    std::vector<flatbuffers::Offset<flatbuffers::Table>> items;
    for (uoffset_t i = 0; i < length; ++i) {
      const std::uint8_t* item = follow(first + i * sizeof(uoffset_t));
      items.emplace_back(type.element() == reflection::String ? text(item)
                                                              : table(object(type.index()), item));
    }
    return builder_.CreateVector(items).o;
  }

  uoffset_t child(const reflection::Field& field, const std::uint8_t* owner, const std::uint8_t* at) {
    const reflection::Type& type = *field.type();
    switch (type.base_type()) {
      case reflection::String:
        return text(follow(at));
      case reflection::Vector:
        return list(type, follow(at));
      case reflection::Obj:
        return table(object(type.index()), follow(at));
      default:
        break;
    }
    const std::uint8_t* chosen = field_at(owner, static_cast<voffset_t>(field.offset() - sizeof(voffset_t)));
    const auto* types = schema_.enums()->Get(static_cast<uoffset_t>(type.index()))->values();
    const reflection::EnumVal* value = chosen == nullptr ? nullptr : types->LookupByKey(*chosen);
    return value == nullptr || value->value() == 0 ? 0
                                                   : table(object(value->union_type()->index()), follow(at));
  }

  template <typename T>
  void number(const reflection::Field& field, const std::uint8_t* at, T otherwise) {
    builder_.AddElement<T>(field.offset(), at == nullptr ? otherwise : number_at<T>(at), otherwise);
  }

  void element(const reflection::Field& field, const std::uint8_t* at) {
    const std::int64_t whole = field.default_integer();
    switch (field.type()->base_type()) {
      case reflection::Short:
      case reflection::UShort:
        return number(field, at, static_cast<std::uint16_t>(whole));
      case reflection::Int:
      case reflection::UInt:
        return number(field, at, static_cast<std::uint32_t>(whole));
      case reflection::Long:
      case reflection::ULong:
        return number(field, at, static_cast<std::uint64_t>(whole));
      case reflection::Float:
        return number(field, at, static_cast<float>(field.default_real()));
      case reflection::Double:
        return number(field, at, field.default_real());
      default:
        return number(field, at, static_cast<std::uint8_t>(whole));
    }
  }

  uoffset_t table(const reflection::Object& type, const std::uint8_t* address) {
    std::map<voffset_t, uoffset_t> children;
    for (const reflection::Field* field : *type.fields()) {
      const std::uint8_t* at = field_at(address, field->offset());
      if (at != nullptr && field->type()->base_type() >= reflection::String) {
        children[field->offset()] = child(*field, address, at);
      }
    }
    const uoffset_t start = builder_.StartTable();
    for (const reflection::Field* field : *type.fields()) {
      const auto found = children.find(field->offset());
      if (found != children.end()) {
        builder_.AddOffset(field->offset(), flatbuffers::Offset<flatbuffers::Table>(found->second));
      } else if (field->type()->base_type() < reflection::String && !field->deprecated() &&
                 !field->optional()) {
        element(*field, field_at(address, field->offset()));
      }
    }
    return builder_.EndTable(start);
  }

  const reflection::Schema& schema_;
  const Copies& replaced_;
  flatbuffers::FlatBufferBuilder builder_;
};

template <typename T>
void put(std::vector<std::uint8_t>* bytes, std::size_t at, T value) {
  std::memcpy(bytes->data() + at, &value, sizeof value);
}

void align(std::vector<std::uint8_t>* bytes, std::size_t unit) {
  bytes->resize(bytes->size() + (unit - bytes->size() % unit) % unit);
}

// The delegate's data with its graph copied.
std::vector<std::uint8_t> spread_graph(const std::uint8_t* data, const StoredGraph& found) {
  char identifier[5] = {};
  std::memcpy(identifier, data + found.graph + 4, 4);
  const std::vector<std::uint8_t> graph = Copier(graph_schema(), {}).run(data + found.graph, identifier);
  if (found.graph == found.payload) {
    return graph;
  }
  const std::uint8_t* payload = data + found.payload;
  std::vector<std::uint8_t> bytes(payload, payload + (found.graph - found.payload));
  bytes.insert(bytes.end(), graph.begin(), graph.end());
  put(&bytes, kGraphSize, static_cast<std::uint32_t>(graph.size()));
  const auto constants = number_at<std::uint32_t>(payload + kDataOffset);
  if (constants != 0 && constants <= found.payload_size) {
    align(&bytes, kDataAlignment);
    put(&bytes, kDataOffset, static_cast<std::uint32_t>(bytes.size()));
    bytes.insert(bytes.end(), payload + constants, payload + found.payload_size);
  }
  return bytes;
}

}  // namespace

const reflection::Schema& program_schema() {
  return *reflection::GetSchema(pte::ProgramBinarySchema::data());
}

const reflection::Schema& graph_schema() {
  return *reflection::GetSchema(xnn::XNNGraphBinarySchema::data());
}

bool well_formed(const std::uint8_t* data, std::size_t size) {
  const Result<ProgramLayout> layout = check_layout(data, size, "");
  if (!layout.ok() || reinterpret_cast<std::uintptr_t>(data) % sizeof(std::uint64_t) != 0) {
    return false;
  }
  const auto program_size = static_cast<std::size_t>(layout.value().program_size);
  flatbuffers::Verifier verifier(data, program_size);
  return program_size < FLATBUFFERS_MAX_BUFFER_SIZE && pte::VerifyProgramBuffer(verifier);
}

std::vector<StoredGraph> find_graphs(const std::uint8_t* data, std::size_t size) {
  std::vector<StoredGraph> graphs;
  std::set<std::size_t> known;
  const Result<ProgramLayout> layout = check_layout(data, size, "");
  const auto* methods = layout.ok() ? pte::GetProgram(data)->execution_plan() : nullptr;
  for (flatbuffers::uoffset_t m = 0; methods != nullptr && m < methods->size(); ++m) {
    const auto* delegates = methods->Get(m)->delegates();
    for (flatbuffers::uoffset_t d = 0; delegates != nullptr && d < delegates->size(); ++d) {
      const pte::BackendDelegate& delegate = *delegates->Get(d);
      StoredGraph found{};
      found.path = "execution_plan[" + std::to_string(m) + "].delegates[" + std::to_string(d) + "]";
      if (delegate.id() != nullptr && delegate.id()->str() == kBackend && delegate.processed() != nullptr &&
          locate_payload(data, size, layout.value(), *delegate.processed(), &found) && locate(data, &found) &&
          known.insert(found.graph).second) {
        graphs.push_back(found);
      }
    }
  }
  return graphs;
}

std::vector<std::uint8_t> spread(const std::uint8_t* data, std::size_t size) {
  if (!well_formed(data, size)) {
    return {};
  }
  Copies inside;
  std::map<std::size_t, std::vector<std::uint8_t>> outside;  // by segment
  for (const StoredGraph& graph : find_graphs(data, size)) {
    std::vector<std::uint8_t> copy = spread_graph(data, graph);
    if (graph.in_segment) {
      outside[graph.index] = std::move(copy);
    } else {
      inside[data + graph.payload] = std::move(copy);
    }
  }
  std::vector<std::uint8_t> file = Copier(program_schema(), inside).run(data, pte::ProgramIdentifier());
  const ProgramLayout layout = check_layout(data, size, "").value();
  if (size < kHeaderEnd || std::memcmp(data + 8, "eh00", 4) != 0) {
    return file;
  }
  file.insert(file.begin() + 8, data + 8, data + kHeaderEnd);
  put(&file, 0, static_cast<std::uint32_t>(number_at<std::uint32_t>(file.data()) + kInserted));
  align(&file, kSegmentAlignment);
  const std::size_t base = file.size();
  put<std::uint64_t>(&file, kProgramSize, base);
  const auto* segments = pte::GetProgram(file.data())->segments();
  std::vector<std::uint8_t> tail;
  for (uoffset_t i = 0; segments != nullptr && i < segments->size(); ++i) {
    const pte::DataSegment& segment = *segments->Get(i);
    const std::uint8_t* first = data + layout.segment_base + segment.offset();
    const auto other = outside.find(i);
    align(&tail, kSegmentAlignment);
    const std::size_t before = tail.size();
    if (other != outside.end()) {
      tail.insert(tail.end(), other->second.begin(), other->second.end());
    } else if (segment.offset() <= layout.segment_size &&
               segment.size() <= layout.segment_size - segment.offset()) {
      tail.insert(tail.end(), first, first + segment.size());
    } else {
      return {};
    }
    // Every number is stored now, so it can be changed where it is.
    const auto* address = reinterpret_cast<const std::uint8_t*>(&segment);
    const std::uint8_t* offset = field_at(address, pte::DataSegment::VT_OFFSET);
    const std::uint8_t* length = field_at(address, pte::DataSegment::VT_SIZE);
    put<std::uint64_t>(&file, static_cast<std::size_t>(offset - file.data()), before);
    put<std::uint64_t>(&file, static_cast<std::size_t>(length - file.data()), tail.size() - before);
  }
  put<std::uint64_t>(&file, kSegmentBase, layout.segment_base == 0 ? 0 : base);
  if (number_at<std::uint32_t>(file.data() + kHeaderLength) >= kInserted) {
    put<std::uint64_t>(&file, kSegmentSize, tail.size());
  }
  file.insert(file.end(), tail.begin(), tail.end());
  return file;
}

}  // namespace slipway::fuzz
