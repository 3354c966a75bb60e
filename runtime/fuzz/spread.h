// The same program with every number stored: FlatBuffers leave out those that have their default value, and
// what is left out cannot be changed where it would be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace slipway::fuzz {

// Empty where the file is no well-formed program.
std::vector<std::uint8_t> spread(const std::uint8_t* data, std::size_t size);

}  // namespace slipway::fuzz
