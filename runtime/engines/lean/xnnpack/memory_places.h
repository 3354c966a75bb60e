// Where values lie in one block of memory, of which each is needed for some steps only.
#pragma once

#include <cstddef>
#include <vector>

namespace slipway::lean {

// A value that is in memory from step `first` to step `last`, both included.
struct Life {
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t size = 0;

  bool meets(const Life& other) const { return first <= other.last && other.first <= last; }
};

struct Places {
  std::vector<std::size_t> offsets;  // of each life
  std::size_t size = 0;              // of the block
};

// The most bytes that are needed at once: no block can be smaller.
std::size_t least_size(const std::vector<Life>& lives);

// Places that lives which meet do not share. Sizes that are multiples of a unit give such offsets.
Places find_places(const std::vector<Life>& lives);

}  // namespace slipway::lean
