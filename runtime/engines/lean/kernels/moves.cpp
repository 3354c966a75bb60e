#include "lean/kernels/moves.h"

#include <cstdlib>
#include <numeric>
#include <utility>

#include "lean/kernels/elements.h"
#include "lean/kernels/sharing.h"

namespace slipway::lean {
namespace {

// Rows this short are copied by columns where there are more of those.
constexpr std::int64_t kShort = 8;
// Elements on a side of the tiles in which rows become columns: few enough lines for the nearest cache.
constexpr std::int64_t kTile = 16;

// Two dimensions; the longer one is the inner loop where rows are short.
template <typename Bits>
void move_plane(std::uint8_t* to_bytes, const std::uint8_t* from_bytes, Axis a, Axis b) {
  auto* to = reinterpret_cast<Bits*>(to_bytes);
  const auto* from = reinterpret_cast<const Bits*>(from_bytes);
  for (std::size_t k = 0; k < 2; ++k) {  // of bytes
    a.steps[k] /= static_cast<std::int64_t>(sizeof(Bits));
    b.steps[k] /= static_cast<std::int64_t>(sizeof(Bits));
  }
  const bool fills = b.steps[0] == 1 && b.steps[1] == 0;
  if (!fills && b.size < kShort && a.size > b.size) {
    std::swap(a, b);
  }
  const auto [a_to, a_from] = std::pair(a.steps[0], a.steps[1]);
  const auto [b_to, b_from] = std::pair(b.steps[0], b.steps[1]);
  if (fills) {
    for (std::int64_t i = 0; i < a.size; ++i) {
      std::fill_n(to + i * a_to, b.size, from[i * a_from]);
    }
  } else if (a_from == 1 && b_to == 1 && b.size >= kShort && a.size >= kShort) {
    for (std::int64_t x = 0; x < a.size; x += kTile) {
      const std::int64_t x_end = std::min(a.size, x + kTile);
      for (std::int64_t y = 0; y < b.size; y += kTile) {
        const std::int64_t y_end = std::min(b.size, y + kTile);
        for (std::int64_t i = x; i < x_end; ++i) {
          for (std::int64_t j = y; j < y_end; ++j) {
            to[i * a_to + j] = from[i + j * b_from];
          }
        }
      }
    }
  } else {
    for (std::int64_t i = 0; i < a.size; ++i) {
      for (std::int64_t j = 0; j < b.size; ++j) {
        to[i * a_to + j * b_to] = from[i * a_from + j * b_from];
      }
    }
  }
}

template <typename Bits>
void pick_bits(const std::uint8_t* from, const std::int64_t* places, std::size_t count, std::uint8_t* to) {
  auto* results = reinterpret_cast<Bits*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    results[i] = *reinterpret_cast<const Bits*>(from + places[i]);
  }
}

}  // namespace

Axes::Axes(const Shape& shape, std::initializer_list<const std::int64_t*> steps) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    add(shape[d], {});
    for (std::size_t k = 0; k < steps.size() && shape[d] != 1; ++k) {
      items[rank - 1].steps[k] = steps.begin()[k][d];
    }
  }
}

void Axes::add(std::int64_t size, std::initializer_list<std::int64_t> steps) {
  empty = empty || size <= 0;
  if (size != 1) {
    Axis& axis = items[rank++];
    axis = {size, {}};
    std::copy(steps.begin(), steps.end(), axis.steps.begin());
  }
}

std::size_t Axes::count() const {
  return std::accumulate(
      items.begin(), items.begin() + rank, std::size_t{1},
      [](std::size_t count, const Axis& axis) { return count * static_cast<std::size_t>(axis.size); });
}

Axes Axes::part(std::size_t d, std::size_t first, std::size_t last) const {
  Axes part = *this;
  part.items[d].size = static_cast<std::int64_t>(last - first);
  for (std::size_t k = 0; k < start.size(); ++k) {
    part.start[k] += static_cast<std::int64_t>(first) * items[d].steps[k];
  }
  return part;
}

void Axes::arrange() {
  // By insertion, equals as they came: there are few.
  for (std::size_t i = 1; i < rank; ++i) {
    for (std::size_t k = i; k > 0 && std::abs(items[k - 1].steps[0]) < std::abs(items[k].steps[0]); --k) {
      std::swap(items[k - 1], items[k]);
    }
  }
  merge();
}

void Axes::merge() {
  const std::size_t all = rank;
  rank = 0;
  for (std::size_t i = 0; i < all; ++i) {
    const Axis axis = items[i];
    Axis& last = items[rank == 0 ? 0 : rank - 1];
    const bool merge = rank > 0 && std::equal(axis.steps.begin(), axis.steps.end(), last.steps.begin(),
                                              [&axis](std::int64_t one, std::int64_t other) {
                                                return one * axis.size == other;
                                              });
    if (merge) {
      last = {last.size * axis.size, axis.steps};
    } else {
      items[rank++] = axis;
    }
  }
}

void Move::prepare(std::size_t element) {
  element_ = element;
  axes_.arrange();
  outer_ = axes_.rank;
  if (outer_ == 0) {
    run_ = element_;
    return;
  }
  const Axis last = axes_.items[outer_ - 1];
  if (last.steps[0] == 1 && last.steps[1] == 1 && (outer_ == 1 || last.size >= kShort)) {
    run_ = static_cast<std::size_t>(last.size) * element_;
    --outer_;
  } else if (outer_ == 1) {
    // The two innermost dimensions are copied together.
    axes_.items[1] = last;
    axes_.items[0] = {1, {}};
    axes_.rank = 2;
    outer_ = 0;
  } else {
    outer_ -= 2;
  }
  for (std::size_t i = 0; i < axes_.rank; ++i) {
    for (std::int64_t& step : axes_.items[i].steps) {
      step *= static_cast<std::int64_t>(element_);
    }
  }
}

void Move::run(std::uint8_t* to, const std::uint8_t* from) const {
  if (bytes_together() != 0) {
    return move_bytes(to, from, run_);
  }
  if (axes_.empty) {
    return;
  }
  share_axes(axes_, run_ != 0 ? outer_ : axes_.rank, 1, 1, [&](const Axes& axes) {
    // Runs are moved along the axis around them without a walk's step for each.
    const bool along = run_ != 0 && outer_ != 0;
    const Axis inner = along ? axes.items[outer_ - 1] : Axis{1, {}};
    Walk<2> walk(axes, outer_ - (along ? 1 : 0));
    do {
      std::uint8_t* target = to + walk.offsets[0];
      const std::uint8_t* source = from + walk.offsets[1];
      for (std::int64_t i = 0; run_ != 0 && i < inner.size; ++i) {
        move_bytes(target + i * inner.steps[0], source + i * inner.steps[1], run_);
      }
      if (run_ == 0) {
        in_bits(element_, [&](auto bits) {
          move_plane<decltype(bits)>(target, source, axes.items[outer_], axes.items[outer_ + 1]);
        });
      }
    } while (walk.next());
  });
}

void pick_runs(std::size_t element, std::size_t run, const std::uint8_t* from,
               const std::vector<std::int64_t>& places, std::uint8_t* to) {
  if (run == element) {
    in_bits(element, [&](auto bits) { pick_bits<decltype(bits)>(from, places.data(), places.size(), to); });
    return;
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    move_bytes(to + i * run, from + places[i], run);
  }
}

}  // namespace slipway::lean
