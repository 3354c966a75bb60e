// A fast digest against accidents: as quick as memory can be read, and no obstacle to anybody who means harm.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipway {

struct Checksum {
  std::uint64_t first = 0;
  std::uint64_t second = 0;

  bool operator==(const Checksum& other) const { return first == other.first && second == other.second; }
  bool operator!=(const Checksum& other) const { return !(*this == other); }
};

// Changes for certain with any change within eight bytes, and as good as certainly with every other accident.
// The same on every machine of one byte order.
Checksum checksum_of(const void* data, std::size_t size);

}  // namespace slipway
