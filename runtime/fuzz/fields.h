// What the fuzzer and the sweep know of a program's form: its schemas, where XNNPACK's graphs lie in it,
// every number of its flatbuffers and of those graphs; and what the sweep writes over a number: limits,
// neighbours, the number of a sibling.
#pragma once

#include <flatbuffers/reflection.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace slipway::fuzz {

// Upstream's schemas of programs and of XNNPACK's graphs, as FlatBuffers' own reflection gives them.
const reflection::Schema& program_schema();
const reflection::Schema& graph_schema();

// Where a delegate's graph lies in the file; all in bytes from the file's start.
struct StoredGraph {
  std::string path;     // "execution_plan[0].delegates[2]"
  std::size_t payload;  // the header "XH00", or the graph itself where there is none
  std::size_t payload_size;
  std::size_t graph;
  std::size_t graph_size;
};

// Bytes of the header before a graph, and where its numbers are.
inline constexpr std::size_t kGraphHeader = 30;
inline constexpr std::size_t kGraphOffset = 10;
inline constexpr std::size_t kGraphSize = 14;
inline constexpr std::size_t kDataOffset = 18;
inline constexpr std::size_t kDataSize = 22;

// The same of the program's extended header.
inline constexpr std::size_t kHeaderLength = 12;
inline constexpr std::size_t kProgramSize = 16;
inline constexpr std::size_t kSegmentBase = 24;
inline constexpr std::size_t kSegmentSize = 32;
inline constexpr std::size_t kHeaderEnd = 40;

template <typename T>
T number_at(const std::uint8_t* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

inline const std::uint8_t* follow(const std::uint8_t* address) {
  return address + number_at<flatbuffers::uoffset_t>(address);
}

// Address of a table's field, null where it is not stored.
inline const std::uint8_t* field_at(const std::uint8_t* table, std::uint16_t slot) {
  return reinterpret_cast<const flatbuffers::Table*>(table)->GetAddressOf(slot);
}

// Whether the file is a program of a well-formed flatbuffer: what follows can be walked without a look at its
// bounds.
bool well_formed(const std::uint8_t* data, std::size_t size);

// XNNPACK's graphs in a well-formed file, those alone which are well-formed themselves; each once.
std::vector<StoredGraph> find_graphs(const std::uint8_t* data, std::size_t size);

struct Field {
  std::size_t offset = 0;  // in the file
  reflection::BaseType type = reflection::None;
  const reflection::Enum* names = nullptr;  // what its numbers mean, where the schema says so
  bool entry = false;                       // of a table's index of fields (vtable): 0 takes the field away
  std::string path;                         // "execution_plan[0].values[3].val<Tensor>.sizes[1]"
};

// Bytes a number of this type takes.
inline std::size_t width_of(reflection::BaseType type) {
  return flatbuffers::GetTypeSize(type);
}

// All of them. Of a list of numbers, `ends` at either end; none of what is data: weights, graphs as bytes.
std::vector<Field> find_fields(const std::uint8_t* data, std::size_t size, std::size_t ends);

// A path without the numbers of elements: what fields of the same kind have in common.
std::string kind_of(const std::string& path);

// One number of a file changed.
struct Patch {
  std::size_t field;    // index of it
  std::uint64_t value;  // little-endian in the field's width
};

// What the field holds, as bits.
std::uint64_t stored(const std::uint8_t* data, const Field& field);
void store(std::uint8_t* data, const Field& field, std::uint64_t value);

// The bits as a person reads them.
std::string shown(const Field& field, std::uint64_t value);

// All patches of all fields, in the fields' order. `siblings` of a field: at most so many on either side.
std::vector<Patch> plan_patches(const std::uint8_t* data, const std::vector<Field>& fields,
                                std::size_t siblings);

// The values alone that one field gets, without siblings'.
std::vector<std::uint64_t> values_for(const Field& field, std::uint64_t now);

}  // namespace slipway::fuzz
