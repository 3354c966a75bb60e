// What the sweep writes over a number: limits, neighbours, the number of a sibling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fields.h"

namespace slipway::fuzz {

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
