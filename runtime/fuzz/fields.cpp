#include "fields.h"

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
constexpr char kBackend[] = "XnnpackBackend";

// A number of a header: its bytes from the header's start.
struct HeaderField {
  std::size_t offset;
  reflection::BaseType type;
  const char* name;
};

constexpr HeaderField kProgramHeader[] = {{12, reflection::UInt, "length"},
                                          {16, reflection::ULong, "program_size"},
                                          {24, reflection::ULong, "segment_base"},
                                          {32, reflection::ULong, "segment_size"}};
constexpr std::size_t kGraphOffset = 10;
constexpr HeaderField kGraphHeader[] = {{8, reflection::UShort, "length"},
                                        {kGraphOffset, reflection::UInt, "graph_offset"},
                                        {14, reflection::UInt, "graph_size"},
                                        {18, reflection::UInt, "data_offset"},
                                        {22, reflection::ULong, "data_size"}};

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
    for (uoffset_t i = 0; i < length && !bytes; ++i) {
      // Between its ends nothing of a list of numbers is looked at, however long it is.
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

// Where XNNPACK's graphs have their headers, in bytes from the file's start, by their paths; each once.
std::vector<std::pair<std::string, std::size_t>> find_graphs(const std::uint8_t* data, std::size_t size) {
  std::vector<std::pair<std::string, std::size_t>> graphs;
  std::set<std::size_t> known;
  const std::uint64_t segments_start = check_layout(data, size, "").value().segment_base;
  const pte::Program& program = *pte::GetProgram(data);
  const auto& methods = *program.execution_plan();
  for (uoffset_t m = 0; m < methods.size(); ++m) {
    const auto* delegates = methods.Get(m)->delegates();
    for (uoffset_t d = 0; delegates != nullptr && d < delegates->size(); ++d) {
      const pte::BackendDelegate& delegate = *delegates->Get(d);
      const pte::BackendDelegateDataReference& where = *delegate.processed();
      if (delegate.id()->str() != kBackend || where.location() != pte::DataLocation::SEGMENT) {
        continue;
      }
      const std::size_t header =
          static_cast<std::size_t>(segments_start + program.segments()->Get(where.index())->offset());
      if (known.insert(header).second) {
        graphs.emplace_back("execution_plan[" + std::to_string(m) + "].delegates[" + std::to_string(d) + "]",
                            header);
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

std::vector<Field> find_fields(const std::uint8_t* data, std::size_t size) {
  std::vector<Field> found;
  const auto add = [&](const auto& header, std::size_t start, const std::string& path) {
    for (const HeaderField& field : header) {
      found.push_back({start + field.offset, field.type, nullptr, false, path + "header." + field.name});
    }
  };
  add(kProgramHeader, 0, "");
  FieldReader(data, pte::ProgramBinarySchema::data(), &found).root(data, "");
  for (const auto& [delegate, start] : find_graphs(data, size)) {
    const std::string path = delegate + "/graph.";
    add(kGraphHeader, start, path);
    const auto* graph = data + start + number_at<std::uint32_t>(data + start + kGraphOffset);
    FieldReader(data, xnn::XNNGraphBinarySchema::data(), &found).root(graph, path);
  }
  return found;
}

std::uint64_t stored(const std::uint8_t* data, const Field& field) {
  std::uint64_t value = 0;
  std::memcpy(&value, data + field.offset, width_of(field.type));
  return value;
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
