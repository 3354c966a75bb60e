#include "fields.h"

#include <flatbuffers/verifier.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "program_bfbs_generated.h"
#include "program_file.h"
#include "program_generated.h"
#include "xnnpack_runtime_bfbs_generated.h"
#include "xnnpack_runtime_generated.h"

namespace slipway::fuzz {
namespace {

constexpr std::size_t kEnds = 8;      // of a list of numbers, so many at either end
constexpr std::size_t kSiblings = 2;  // on either side
constexpr std::size_t kIdentifier = 4;
constexpr char kBackend[] = "XnnpackBackend";

// Where a delegate's graph lies in the file; all in bytes from the file's start.
struct StoredGraph {
  std::string path;     // "execution_plan[0].delegates[2]"
  std::size_t payload;  // the header "XH00", or the graph itself where there is none
  std::size_t payload_size;
  std::size_t graph;
  std::size_t graph_size;
};

// Bytes of the header before a graph, and where its numbers are.
constexpr std::size_t kGraphHeader = 30;
constexpr std::size_t kGraphOffset = 10;
constexpr std::size_t kGraphSize = 14;
constexpr std::size_t kDataOffset = 18;
constexpr std::size_t kDataSize = 22;

// The same of the program's extended header.
constexpr std::size_t kHeaderLength = 12;
constexpr std::size_t kProgramSize = 16;
constexpr std::size_t kSegmentBase = 24;
constexpr std::size_t kSegmentSize = 32;
constexpr std::size_t kHeaderEnd = 40;

template <typename T>
T number_at(const std::uint8_t* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

const std::uint8_t* follow(const std::uint8_t* address) {
  return address + number_at<flatbuffers::uoffset_t>(address);
}

// Address of a table's field, null where it is not stored.
const std::uint8_t* field_at(const std::uint8_t* table, std::uint16_t slot) {
  return reinterpret_cast<const flatbuffers::Table*>(table)->GetAddressOf(slot);
}

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
  const std::uint32_t index = reference.index();
  if (reference.location() == pte::DataLocation::SEGMENT) {
    const auto* segments = program.segments();
    if (segments == nullptr || index >= segments->size()) {
      return false;
    }
    const pte::DataSegment& segment = *segments->Get(index);
    const std::uint64_t room = layout.segment_base <= size ? size - layout.segment_base : 0;
    found->payload = static_cast<std::size_t>(layout.segment_base + segment.offset());
    found->payload_size = static_cast<std::size_t>(segment.size());
    return segment.offset() <= room && segment.size() <= room - segment.offset();
  }
  const auto* items = program.backend_delegate_data();
  if (items == nullptr || index >= items->size() || items->Get(index)->data() == nullptr) {
    return false;
  }
  const auto* bytes = items->Get(index)->data();
  found->payload = static_cast<std::size_t>(bytes->data() - data);
  found->payload_size = bytes->size();
  return true;
}

// Elements of lists, more than any program has; damaged ones may point to one long list from everywhere.
constexpr std::size_t kMost = 1000000;

using flatbuffers::uoffset_t;
using flatbuffers::voffset_t;

bool is_number(reflection::BaseType type) {
  return type >= reflection::UType && type <= reflection::Double;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

class FieldReader {
 public:
  FieldReader(const std::uint8_t* data, const std::uint8_t* schema, std::vector<Field>* found)
      : data_(data), schema_(*reflection::GetSchema(schema)), found_(*found) {}

  void root(const std::uint8_t* buffer, const std::string& path) {
    add(buffer, reflection::UInt, path + "root");
    table(*schema_.root_table(), follow(buffer), path);
  }

 private:
  void add(const std::uint8_t* address, reflection::BaseType type, const std::string& path,
           const reflection::Enum* names = nullptr) {
    found_.push_back({static_cast<std::size_t>(address - data_), type, names, false, path});
  }

  const reflection::Enum* names_of(const reflection::Type& type) const {
    return type.index() < 0 ? nullptr : schema_.enums()->Get(static_cast<uoffset_t>(type.index()));
  }

  const reflection::Object& object(std::int32_t index) const {
    return *schema_.objects()->Get(static_cast<uoffset_t>(index));
  }

  void table(const reflection::Object& type, const std::uint8_t* address, const std::string& path) {
    if (!seen_.insert(address).second) {
      return;
    }
    for (const reflection::Field* field : *type.fields()) {
      // A deprecated field (scale_bf16) has no accessor: nothing reads it, and the verifier does not look
      // at what it refers to.
      if (field->deprecated()) {
        continue;
      }
      const std::uint8_t* at = field_at(address, field->offset());
      if (at == nullptr) {
        continue;
      }
      const std::string name = path + field->name()->str();
      const std::uint8_t* entry = address - number_at<flatbuffers::soffset_t>(address) + field->offset();
      if (entries_.insert(entry).second) {
        add(entry, reflection::UShort, name + ".stored");
        found_.back().entry = true;
      }
      const reflection::Type& kind = *field->type();
      switch (kind.base_type()) {
        case reflection::String:
          add(follow(at), reflection::UInt, name + ".length");
          break;
        case reflection::Vector:
          list(kind, follow(at), name);
          break;
        case reflection::Obj:
          if (!object(kind.index()).is_struct()) {
            table(object(kind.index()), follow(at), name + ".");
          }
          break;
        case reflection::Union:
          choice(*names_of(kind), address, *field, follow(at), name);
          break;
        default:
          if (is_number(kind.base_type())) {
            add(at, kind.base_type(), name, names_of(kind));
          }
      }
    }
  }

  // A table of the type that the number before it names.
  void choice(const reflection::Enum& types, const std::uint8_t* owner, const reflection::Field& field,
              const std::uint8_t* address, const std::string& path) {
    const auto slot = static_cast<voffset_t>(field.offset() - sizeof(voffset_t));
    const std::uint8_t* type = field_at(owner, slot);
    const reflection::EnumVal* chosen = type == nullptr ? nullptr : types.values()->LookupByKey(*type);
    if (chosen != nullptr && chosen->union_type()->base_type() == reflection::Obj) {
      table(object(chosen->union_type()->index()), address, path + "<" + chosen->name()->str() + ">.");
    }
  }

  void list(const reflection::Type& type, const std::uint8_t* address, const std::string& path) {
    const auto length = number_at<uoffset_t>(address);
    const std::uint8_t* first = address + sizeof(uoffset_t);
    add(address, reflection::UInt, path + ".length");
    const std::size_t width = is_number(type.element()) ? width_of(type.element()) : sizeof(uoffset_t);
    const bool bytes = ends_with(path, ".data") || ends_with(path, ".storage");
    for (uoffset_t i = 0; i < length && !bytes && steps_++ < kMost; ++i) {
      // Between its ends nothing of a list of numbers is looked at, however long a damaged file says it is.
      if (is_number(type.element()) && i >= kEnds && length - i > kEnds) {
        i = length - static_cast<uoffset_t>(kEnds);
      }
      const std::uint8_t* item = first + i * width;
      const std::string name = path + "[" + std::to_string(i) + "]";
      if (is_number(type.element())) {
        add(item, type.element(), name, names_of(type));
      } else if (type.element() == reflection::Obj) {
        table(object(type.index()), follow(item), name + ".");
      } else if (type.element() == reflection::String) {
        add(follow(item), reflection::UInt, name + ".length");
      }
    }
  }

  const std::uint8_t* data_;
  const reflection::Schema& schema_;
  std::vector<Field>& found_;
  std::set<const std::uint8_t*> seen_;
  std::set<const std::uint8_t*> entries_;
  std::size_t steps_ = 0;  // from element to element of lists
};

template <typename T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename T>
T value_of(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint64_t mask_of(std::size_t width) {
  return width == 8 ? UINT64_MAX : (std::uint64_t{1} << (8 * width)) - 1;
}

template <typename T>
std::vector<std::uint64_t> floating(std::uint64_t now) {
  using Limits = std::numeric_limits<T>;
  const T value = value_of<T>(now);
  const T all[] = {0,
                   1,
                   std::nextafter(value, Limits::infinity()),
                   std::nextafter(value, -Limits::infinity()),
                   value + 1,
                   value - 1,
                   2 * value,
                   -value,
                   Limits::max(),
                   Limits::lowest(),
                   Limits::denorm_min(),
                   Limits::infinity(),
                   -Limits::infinity(),
                   Limits::quiet_NaN()};
  std::vector<std::uint64_t> bits;
  for (const T item : all) {
    bits.push_back(bits_of(item));
  }
  return bits;
}

std::vector<std::uint64_t> whole(const Field& field, std::uint64_t now) {
  const std::uint64_t all = mask_of(width_of(field.type));
  // 0, 1, neighbours, double, half; the largest with a sign and without (which is -1), and the smallest with
  // one.
  std::vector<std::uint64_t> values = {0,       1,        now + 1, now - 1,       2 * now,
                                       now / 2, all >> 1, all,     (all >> 1) + 1};
  if (field.names != nullptr) {
    for (const reflection::EnumVal* name : *field.names->values()) {
      values.push_back(static_cast<std::uint64_t>(name->value()));
    }
  }
  for (std::uint64_t& value : values) {
    value &= all;
  }
  return values;
}

// XNNPACK's graphs in a well-formed file, those alone which are well-formed themselves; each once.
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

// A path without the numbers of elements: what fields of the same kind have in common.
std::string kind_of(const std::string& path) {
  std::string kind;
  bool inside = false;
  for (const char c : path) {
    inside = c == '[' || (inside && c != ']');
    if (!inside || c == '[') {
      kind += c;
    }
  }
  return kind;
}

// The values that one field gets, without siblings'.
std::vector<std::uint64_t> values_for(const Field& field, std::uint64_t now) {
  std::vector<std::uint64_t> values;
  if (field.entry) {
    values = {0};
  } else if (field.type == reflection::Float) {
    values = floating<float>(now);
  } else if (field.type == reflection::Double) {
    values = floating<double>(now);
  } else {
    values = whole(field, now);
  }
  values.push_back(now);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  values.erase(std::find(values.begin(), values.end(), now));
  return values;
}

}  // namespace

bool well_formed(const std::uint8_t* data, std::size_t size) {
  const Result<ProgramLayout> layout = check_layout(data, size, "");
  if (!layout.ok() || reinterpret_cast<std::uintptr_t>(data) % sizeof(std::uint64_t) != 0) {
    return false;
  }
  const auto program_size = static_cast<std::size_t>(layout.value().program_size);
  flatbuffers::Verifier verifier(data, program_size);
  return program_size < FLATBUFFERS_MAX_BUFFER_SIZE && pte::VerifyProgramBuffer(verifier);
}

std::vector<Field> find_fields(const std::uint8_t* data, std::size_t size) {
  std::vector<Field> found;
  if (size >= kHeaderEnd && std::memcmp(data + 8, "eh00", 4) == 0) {
    found.push_back({kHeaderLength, reflection::UInt, nullptr, false, "header.length"});
    found.push_back({kProgramSize, reflection::ULong, nullptr, false, "header.program_size"});
    found.push_back({kSegmentBase, reflection::ULong, nullptr, false, "header.segment_base"});
    found.push_back({kSegmentSize, reflection::ULong, nullptr, false, "header.segment_size"});
  }
  FieldReader(data, pte::ProgramBinarySchema::data(), &found).root(data, "");
  for (const StoredGraph& graph : find_graphs(data, size)) {
    const std::string path = graph.path + "/graph.";
    if (graph.graph != graph.payload) {
      const std::size_t at = graph.payload;
      found.push_back({at + 8, reflection::UShort, nullptr, false, path + "header.length"});
      found.push_back({at + kGraphOffset, reflection::UInt, nullptr, false, path + "header.graph_offset"});
      found.push_back({at + kGraphSize, reflection::UInt, nullptr, false, path + "header.graph_size"});
      found.push_back({at + kDataOffset, reflection::UInt, nullptr, false, path + "header.data_offset"});
      found.push_back({at + kDataSize, reflection::ULong, nullptr, false, path + "header.data_size"});
    }
    FieldReader(data, xnn::XNNGraphBinarySchema::data(), &found).root(data + graph.graph, path);
  }
  return found;
}

std::uint64_t stored(const std::uint8_t* data, const Field& field) {
  std::uint64_t value = 0;
  std::memcpy(&value, data + field.offset, width_of(field.type));
  return value;
}

void store(std::uint8_t* data, const Field& field, std::uint64_t value) {
  std::memcpy(data + field.offset, &value, width_of(field.type));
}

std::string shown(const Field& field, std::uint64_t value) {
  switch (field.type) {
    case reflection::Float:
      return std::to_string(value_of<float>(value));
    case reflection::Double:
      return std::to_string(value_of<double>(value));
    case reflection::Byte:
      return std::to_string(value_of<std::int8_t>(value));
    case reflection::Short:
      return std::to_string(value_of<std::int16_t>(value));
    case reflection::Int:
      return std::to_string(value_of<std::int32_t>(value));
    case reflection::Long:
      return std::to_string(value_of<std::int64_t>(value));
    default:
      return std::to_string(value);
  }
}

std::vector<Patch> plan_patches(const std::uint8_t* data, const std::vector<Field>& fields) {
  std::map<std::string, std::vector<std::size_t>> kinds;
  std::vector<std::pair<const std::vector<std::size_t>*, std::size_t>> memberships;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::vector<std::size_t>& kin = kinds[kind_of(fields[i].path)];
    memberships.emplace_back(&kin, kin.size());
    kin.push_back(i);
  }
  std::vector<Patch> patches;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::uint64_t now = stored(data, fields[i]);
    std::vector<std::uint64_t> values = values_for(fields[i], now);
    const auto add = [&](std::uint64_t value) {
      if (value == now || std::find(values.begin(), values.end(), value) != values.end()) {
        return false;
      }
      values.push_back(value);
      return true;
    };
    const auto& [kin, at] = memberships[i];
    std::size_t before = 0;
    std::size_t after = 0;
    for (std::size_t k = at; k-- > 0 && before < kSiblings && !fields[i].entry;) {
      before += add(stored(data, fields[(*kin)[k]])) ? 1 : 0;
    }
    for (std::size_t k = at + 1; k < kin->size() && after < kSiblings && !fields[i].entry; ++k) {
      after += add(stored(data, fields[(*kin)[k]])) ? 1 : 0;
    }
    for (const std::uint64_t value : values) {
      patches.push_back({i, value});
    }
  }
  return patches;
}

}  // namespace slipway::fuzz
