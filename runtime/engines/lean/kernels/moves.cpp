#include "lean/kernels/moves.h"

#include <algorithm>
#include <cstdlib>

#include "lean/kernels/elements.h"

namespace slipway::lean {
namespace {

// Rows this short are copied by columns where there are more of those.
constexpr std::int64_t kShort = 8;
// Elements on a side of the tiles in which rows become columns: few enough lines for the nearest cache.
constexpr std::int64_t kTile = 16;

template <typename Bits>
void move_plane(std::uint8_t* to_bytes, const std::uint8_t* from_bytes, const MoveAxis& a,
                const MoveAxis& b) {
  auto* to = reinterpret_cast<Bits*>(to_bytes);
  const auto* from = reinterpret_cast<const Bits*>(from_bytes);
  if (b.to == 1 && b.from == 0) {
    for (std::int64_t i = 0; i < a.size; ++i) {
      std::fill_n(to + i * a.to, b.size, from[i * a.from]);
    }
  } else if (a.from == 1 && b.to == 1 && b.size >= kShort && a.size >= kShort) {
    for (std::int64_t x = 0; x < a.size; x += kTile) {
      const std::int64_t x_end = std::min(a.size, x + kTile);
      for (std::int64_t y = 0; y < b.size; y += kTile) {
        const std::int64_t y_end = std::min(b.size, y + kTile);
        for (std::int64_t i = x; i < x_end; ++i) {
          for (std::int64_t j = y; j < y_end; ++j) {
            to[i * a.to + j] = from[i + j * b.from];
          }
        }
      }
    }
  } else if (b.size < kShort && a.size > b.size) {
    for (std::int64_t j = 0; j < b.size; ++j) {
      for (std::int64_t i = 0; i < a.size; ++i) {
        to[i * a.to + j * b.to] = from[i * a.from + j * b.from];
      }
    }
  } else if (b.to == 1) {
    for (std::int64_t i = 0; i < a.size; ++i) {
      for (std::int64_t j = 0; j < b.size; ++j) {
        to[i * a.to + j] = from[i * a.from + j * b.from];
      }
    }
  } else {
    for (std::int64_t i = 0; i < a.size; ++i) {
      for (std::int64_t j = 0; j < b.size; ++j) {
        to[i * a.to + j * b.to] = from[i * a.from + j * b.from];
      }
    }
  }
}

void move_plane_of(std::size_t element, std::uint8_t* to, const std::uint8_t* from, const MoveAxis& a,
                   const MoveAxis& b) {
  in_bits(element, [&](auto bits) { move_plane<decltype(bits)>(to, from, a, b); });
}

template <typename Bits>
void pick_bits(const std::uint8_t* from_bytes, const std::int64_t* places, std::size_t count,
               std::uint8_t* to_bytes) {
  const auto* from = reinterpret_cast<const Bits*>(from_bytes);
  auto* to = reinterpret_cast<Bits*>(to_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = from[places[i]];
  }
}

// Runs of one length, known when this is compiled: moves without calls or branches.
template <std::size_t Run>
void pick_short_runs(const std::uint8_t* from, const std::int64_t* places, std::int64_t element,
                     std::size_t count, std::uint8_t* to) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memmove(to + i * Run, from + places[i] * element, Run);
  }
}

}  // namespace

void Move::add(std::int64_t size, std::int64_t to, std::int64_t from) {
  empty_ = empty_ || size <= 0;
  // Only dimensions with more than one element move anything.
  if (size > 1) {
    axes_[rank_++] = {size, to, from};
  }
}

void Move::prepare(std::size_t element) {
  element_ = element;
  // By insertion, equals as they came: there are few.
  for (std::size_t i = 1; i < rank_; ++i) {
    for (std::size_t k = i; k > 0 && std::abs(axes_[k - 1].to) < std::abs(axes_[k].to); --k) {
      std::swap(axes_[k - 1], axes_[k]);
    }
  }
  std::size_t rank = 0;
  for (std::size_t i = 0; i < rank_; ++i) {
    const MoveAxis axis = axes_[i];
    MoveAxis& last = axes_[rank == 0 ? 0 : rank - 1];
    if (rank > 0 && last.to == axis.to * axis.size && last.from == axis.from * axis.size) {
      last = {last.size * axis.size, axis.to, axis.from};
    } else {
      axes_[rank++] = axis;
    }
  }
  rank_ = rank;
  run_ = 0;
  if (rank_ == 0) {
    run_ = element_;
  } else if (axes_[rank_ - 1].to == 1 && axes_[rank_ - 1].from == 1 &&
             (rank_ == 1 || axes_[rank_ - 1].size >= kShort)) {
    run_ = static_cast<std::size_t>(axes_[--rank_].size) * element_;
  } else {
    // The two innermost dimensions are copied together.
    if (rank_ == 1) {
      axes_[rank_++] = axes_[0];
      axes_[0] = {1, 0, 0};
    }
    rank_ -= 2;
  }
}

void Move::run(std::uint8_t* to, const std::uint8_t* from) const {
  if (empty_) {
    return;
  }
  if (rank_ == 0) {
    if (run_ != 0) {
      move_bytes(to, from, run_);
    } else {
      move_plane_of(element_, to, from, axes_[0], axes_[1]);
    }
    return;
  }
  const auto element = static_cast<std::int64_t>(element_);
  if (rank_ == 1 && run_ != 0) {
    const MoveAxis axis = axes_[0];
    for (std::int64_t i = 0; i < axis.size; ++i) {
      move_bytes(to + i * axis.to * element, from + i * axis.from * element, run_);
    }
    return;
  }
  std::array<std::int64_t, 2 * kMostDims> position{};
  for (;;) {
    if (run_ != 0) {
      move_bytes(to, from, run_);
    } else {
      move_plane_of(element_, to, from, axes_[rank_], axes_[rank_ + 1]);
    }
    std::size_t d = rank_;
    for (; d > 0; --d) {
      const MoveAxis& axis = axes_[d - 1];
      to += axis.to * element;
      from += axis.from * element;
      if (++position[d - 1] < axis.size) {
        break;
      }
      position[d - 1] = 0;
      to -= axis.size * axis.to * element;
      from -= axis.size * axis.from * element;
    }
    if (d == 0) {
      return;
    }
  }
}

void pick(std::size_t element, const std::uint8_t* from, const std::int64_t* places, std::size_t count,
          std::uint8_t* to) {
  in_bits(element, [&](auto bits) { pick_bits<decltype(bits)>(from, places, count, to); });
}

void pick_runs(std::size_t run, const std::uint8_t* from, const std::int64_t* places, std::int64_t element,
               std::size_t count, std::uint8_t* to) {
  switch (run) {
    case 4:
      return pick_short_runs<4>(from, places, element, count, to);
    case 6:
      return pick_short_runs<6>(from, places, element, count, to);
    case 8:
      return pick_short_runs<8>(from, places, element, count, to);
    case 12:
      return pick_short_runs<12>(from, places, element, count, to);
    case 16:
      return pick_short_runs<16>(from, places, element, count, to);
    default:
      for (std::size_t i = 0; i < count; ++i) {
        move_bytes(to + i * run, from + places[i] * element, run);
      }
  }
}

void pick_in_lines(std::size_t element, std::size_t run, std::size_t line, std::size_t lines,
                   const std::uint8_t* from, const std::vector<std::int64_t>& places, std::uint8_t* to) {
  for (std::size_t i = 0; i < lines; ++i) {
    if (run == element) {
      pick(element, from, places.data(), places.size(), to);
    } else {
      pick_runs(run, from, places.data(), static_cast<std::int64_t>(run), places.size(), to);
    }
    from += line;
    to += places.size() * run;
  }
}

}  // namespace slipway::lean
