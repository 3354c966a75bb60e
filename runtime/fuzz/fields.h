// Every number of a program's flatbuffers and of the graphs in it, found by their schemas.
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
std::size_t width_of(reflection::BaseType type);

// All of them. Of a list of numbers, `ends` at either end; none of what is data: weights, graphs as bytes.
std::vector<Field> find_fields(const std::uint8_t* data, std::size_t size, std::size_t ends);

// A path without the numbers of elements: what fields of the same kind have in common.
std::string kind_of(const std::string& path);

}  // namespace slipway::fuzz
