// What the fuzzer and the sweep know of a program's form: its schemas, and where XNNPACK's graphs lie in it.
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
  bool in_segment;
  std::uint32_t index;  // of the segment, or of the data in the flatbuffer
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

// The same program with every number stored: FlatBuffers leave out those that have their default value, and
// what is left out cannot be changed where it would be. Empty where the file is no well-formed program.
std::vector<std::uint8_t> spread(const std::uint8_t* data, std::size_t size);

}  // namespace slipway::fuzz
