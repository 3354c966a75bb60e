// Elements moved from one place to another, along steps, in runs as long as they can be.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lean/data/evalue.h"

namespace slipway::lean {

// The first and the last word of what is moved, which overlap unless it has two words.
template <typename Word>
void move_ends(std::uint8_t* to, const std::uint8_t* from, std::size_t count) {
  Word first{};
  Word last{};
  std::memcpy(&first, from, sizeof(Word));
  std::memcpy(&last, from + count - sizeof(Word), sizeof(Word));
  std::memcpy(to, &first, sizeof(Word));
  std::memcpy(to + count - sizeof(Word), &last, sizeof(Word));
}

// The same as std::memmove; without a call where there are few bytes.
inline void move_bytes(std::uint8_t* to, const std::uint8_t* from, std::size_t count) {
  if (count > 16) {
    std::memmove(to, from, count);
  } else if (count >= 8) {
    move_ends<std::uint64_t>(to, from, count);
  } else if (count >= 4) {
    move_ends<std::uint32_t>(to, from, count);
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
// The same for runs of `run` bytes; a place counts elements of `element` bytes.
void pick_runs(std::size_t run, const std::uint8_t* from, const std::int64_t* places, std::int64_t element,
               std::size_t count, std::uint8_t* to);
// The same in each of `lines` lines of `line` bytes: places count runs, of at least one element.
void pick_in_lines(std::size_t element, std::size_t run, std::size_t line, std::size_t lines,
                   const std::uint8_t* from, const std::vector<std::int64_t>& places, std::uint8_t* to);

}  // namespace slipway::lean
