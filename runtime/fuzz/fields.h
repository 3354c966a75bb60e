// Every number of a program's flatbuffers and of the graphs in it, found by their schemas, and
// what the sweep writes over it: limits, neighbours, the number of a sibling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "stored.h"

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
