// Elements moved from one place to another, along steps, in runs as long as they can be.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lean/method/evalue.h"

namespace slipway::lean {

// The same as std::memmove; without a call where there are few bytes.
inline void move_bytes(std::uint8_t* to, const std::uint8_t* from, std::size_t count) {
  // Both ends, which overlap unless there are twice as many.
  if (count > 16) {
    std::memmove(to, from, count);
  } else if (count >= 8) {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::memcpy(&first, from, 8);
    std::memcpy(&last, from + count - 8, 8);
    std::memcpy(to, &first, 8);
    std::memcpy(to + count - 8, &last, 8);
  } else if (count >= 4) {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::memcpy(&first, from, 4);
    std::memcpy(&last, from + count - 4, 4);
    std::memcpy(to, &first, 4);
    std::memcpy(to + count - 4, &last, 4);
  } else {
    std::memmove(to, from, count);
  }
}

// One dimension of what is moved: how many there are, and elements from one to the next on either side.
struct MoveAxis {
  std::int64_t size;
  std::int64_t to;
  std::int64_t from;
};

// The dimensions of a move. They are merged and put in the target's order when it is made; a dimension
// without elements makes it move nothing.
class Move {
 public:
  Move() = default;
  void add(std::int64_t size, std::int64_t to, std::int64_t from);
  // After the last dimension, before the first run; `element` is the size of one in bytes: 1, 2, 4 or 8.
  void prepare(std::size_t element);
  // `to` and `from` are the places of the first element.
  void run(std::uint8_t* to, const std::uint8_t* from) const;
  // Bytes, when all that is moved lies together on both sides; else 0.
  std::size_t bytes_together() const { return rank_ == 0 && !empty_ ? run_ : 0; }

 private:
  std::array<MoveAxis, 2 * kMostDims> axes_{};  // outermost first
  std::size_t rank_ = 0;
  std::size_t element_ = 1;
  std::size_t run_ = 0;  // bytes of the innermost dimension when they lie together on both sides, else 0
  bool empty_ = false;
};

// to[i] = from[places[i]]: single elements of `element` bytes.
void pick(std::size_t element, const std::uint8_t* from, const std::int64_t* places, std::size_t count,
          std::uint8_t* to);

}  // namespace slipway::lean
