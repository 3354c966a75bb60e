// Where XNNPACK's graphs have their intermediate values, in place of XNNPACK's own planner. That one leaves
// gaps unused, and when memory grows, old and new memory are there at once.
#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lean/data/data_store.h"

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

// One block for all graphs: one of them runs at a time, and leaves nothing in it for the next one.
class WorkMemory {
 public:
  // Makes sure that there are so many bytes; false when the system has no more. What was in the block may be
  // lost, and it may move: version() tells.
  bool hold(std::size_t bytes);
  std::uint8_t* data() const { return data_; }
  std::size_t version() const { return version_; }

 private:
  Blocks block_;  // small ones come from the heap, where a test sees what reads or writes behind them
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t version_ = 0;
};

// The places of a graph's values, for the shapes that it has.
class MemoryPlan {
 public:
  // Finds the shapes of all values, and forgets the places of earlier ones.
  static xnn_status reshape(xnn_runtime_t runtime);
  // After reshape().
  xnn_status make(const xnn_runtime& runtime);
  // Tells the graph where its values are. It must be set up before it runs, and told again when the memory
  // has another version.
  xnn_status apply(xnn_runtime_t runtime, WorkMemory* memory) const;

  std::size_t size() const { return size_; }

 private:
  std::vector<std::size_t> values_;     // offsets, by the values' ids
  std::vector<std::size_t> operators_;  // offsets of their own memory
  std::size_t size_ = 0;                // with what may be read behind the last value
};

}  // namespace slipway::lean
