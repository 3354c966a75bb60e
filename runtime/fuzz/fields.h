// What the sweep knows of a program's form: every number of its flatbuffer and of XNNPACK's graphs in it; and
// what it writes over a number: limits, neighbours, the number of a sibling.
#pragma once

#include <flatbuffers/reflection.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slipway::fuzz {

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

// All of them, of a sound program as exporters write it. Of a list of numbers a few at either end; none of
// what is data: weights, graphs as bytes.
std::vector<Field> find_fields(const std::uint8_t* data, std::size_t size);

// One number of a file changed.
struct Patch {
  std::size_t field;    // index of it
  std::uint64_t value;  // little-endian in the field's width
};

// What the field holds, as bits.
std::uint64_t stored(const std::uint8_t* data, const Field& field);

// The bits as a person reads them.
std::string shown(const Field& field, std::uint64_t value);

// All patches of all fields, in the fields' order.
std::vector<Patch> plan_patches(const std::uint8_t* data, const std::vector<Field>& fields);

}  // namespace slipway::fuzz
