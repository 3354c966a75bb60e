// Elements moved from one place to another, along steps, in runs as long as they can be.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "lean/data/evalue.h"

namespace slipway::lean {

// The first and the last word of what is moved, which overlap unless it has two words.
template <typename Word>
void move_ends(std::uint8_t* to, const std::uint8_t* from, std::size_t count) {
  Word first{};
  Word last{};
  // The C library's own would be checked, by a call, where what is written is an array of known size.
  __builtin_memcpy(&first, from, sizeof(Word));
  __builtin_memcpy(&last, from + count - sizeof(Word), sizeof(Word));
  __builtin_memcpy(to, &first, sizeof(Word));
  __builtin_memcpy(to + count - sizeof(Word), &last, sizeof(Word));
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

// One dimension that tensors are gone through together, and elements from one place to the next in each of
// them. The first is written.
struct Axis {
  std::int64_t size;
  std::array<std::int64_t, 4> steps;
};

// The dimensions that move anything: those with more than one element.
struct Axes {
  Axes() = default;
  // Those of a shape, in its order.
  Axes(const Shape& shape, std::initializer_list<const std::int64_t*> steps);
  void add(std::int64_t size, std::initializer_list<std::int64_t> steps);
  // Merges neighbours that are one dimension in all tensors.
  void merge();
  // Puts them in the first tensor's order, outermost first, and merges them.
  void arrange();
  std::size_t count() const;  // of places
  // Their places from `first` to before `last` along axis d.
  Axes part(std::size_t d, std::size_t first, std::size_t last) const;

  std::array<Axis, kMostDims> items;    // as many as `rank` says
  std::array<std::int64_t, 4> start{};  // where the first place lies in each tensor
  std::size_t rank = 0;
  bool empty = false;  // one of them has no elements
};

// The places of the outermost `rank` axes one after the other, and where each lies in N tensors, in elements.
template <std::size_t N>
class Walk {
 public:
  Walk(const Axes& axes, std::size_t rank) : axes_(axes.items.data()), rank_(rank) {
    std::copy_n(axes.start.begin(), N, offsets.begin());
  }
  explicit Walk(const Axes& axes) : Walk(axes, axes.rank) {}

  // False behind the last place: there stands the first again.
  bool next() {
    for (std::size_t d = rank_; d-- > 0;) {
      const Axis& axis = axes_[d];
      const bool again = ++position_[d] == axis.size;
      for (std::size_t k = 0; k < N; ++k) {
        offsets[k] += (again ? 1 - axis.size : 1) * axis.steps[k];
      }
      if (!again) {
        return true;
      }
      position_[d] = 0;
    }
    return false;
  }

  std::array<std::int64_t, N> offsets{};

 private:
  const Axis* axes_;
  std::size_t rank_;
  std::array<std::int64_t, kMostDims> position_{};
};

// Elements that are moved; nothing where a dimension has none.
class Move {
 public:
  void add(std::int64_t size, std::int64_t to, std::int64_t from) { axes_.add(size, {to, from}); }
  // After the last dimension, before the first run; `element` is the size of one in bytes: 1, 2, 4 or 8.
  void prepare(std::size_t element);
  // `to` and `from` are the places of the first element.
  void run(std::uint8_t* to, const std::uint8_t* from) const;
  // Bytes, when all that is moved lies together on both sides; else 0.
  std::size_t bytes_together() const { return outer_ == 0 && !axes_.empty ? run_ : 0; }

 private:
  Axes axes_;              // in bytes
  std::size_t outer_ = 0;  // axes around what is moved at once
  std::size_t element_ = 1;
  std::size_t run_ = 0;  // bytes of the innermost dimension when they lie together on both sides, else 0
};

// Runs of `run` bytes from these places, one behind the other. All sizes and places are in bytes.
void pick_runs(std::size_t element, std::size_t run, const std::uint8_t* from,
               const std::vector<std::int64_t>& places, std::uint8_t* to);

}  // namespace slipway::lean
