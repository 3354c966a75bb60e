#include "lean/xnnpack/memory_places.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace slipway::lean {
namespace {

// Of more values, only one order is tried: placing takes a time that grows with their square.
constexpr std::size_t kFewLives = 1024;

struct Interval {
  std::size_t begin;
  std::size_t end;
  std::size_t life;
};

// Places one value after the other, each in the smallest gap that holds it.
Places place_by(const std::vector<std::size_t>& order, const std::vector<Life>& lives) {
  Places places;
  places.offsets.resize(lives.size());
  std::vector<Interval> placed;  // by where they begin
  for (const std::size_t i : order) {
    const Life& life = lives[i];
    if (life.size == 0) {
      continue;
    }
    std::size_t end = 0;  // of what was seen so far and meets this life
    std::size_t best = 0;
    std::size_t smallest = SIZE_MAX;
    for (const Interval& other : placed) {
      if (!life.meets(lives[other.life])) {
        continue;
      }
      if (other.begin > end && other.begin - end >= life.size && other.begin - end < smallest) {
        smallest = other.begin - end;
        best = end;
      }
      end = std::max(end, other.end);
    }
    const std::size_t at = smallest == SIZE_MAX ? end : best;
    const auto after =
        std::upper_bound(placed.begin(), placed.end(), at,
                         [](std::size_t begin, const Interval& one) { return begin < one.begin; });
    placed.insert(after, {at, at + life.size, i});
    places.offsets[i] = at;
    places.size = std::max(places.size, at + life.size);
  }
  return places;
}

}  // namespace

std::size_t least_size(const std::vector<Life>& lives) {
  std::size_t steps = 0;
  for (const Life& life : lives) {
    steps = std::max(steps, life.last + 1);
  }
  std::vector<std::size_t> begin(steps + 1);
  std::vector<std::size_t> end(steps + 1);
  for (const Life& life : lives) {
    begin[life.first] += life.size;
    end[life.last + 1] += life.size;
  }
  std::size_t now = 0;
  std::size_t most = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    now += begin[i] - end[i];
    most = std::max(most, now);
  }
  return most;
}

Places find_places(const std::vector<Life>& lives) {
  std::vector<std::size_t> order(lives.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // By the greatest keys; the same on every system, for no two are alike.
  const auto sort_by = [&](auto key) {
    std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      const auto first = key(lives[one]);
      const auto second = key(lives[other]);
      return first != second ? first > second : one < other;
    });
  };
  const auto length = [](const Life& life) { return life.last - life.first; };
  sort_by([&](const Life& life) { return std::pair(life.size, length(life)); });
  Places best = place_by(order, lives);
  const std::size_t least = least_size(lives);
  const auto try_order = [&] {
    if (best.size == least || lives.size() > kFewLives) {
      return;
    }
    Places other = place_by(order, lives);
    if (other.size < best.size) {
      best = std::move(other);
    }
  };
  // What stays longest, at the beginning of the block.
  sort_by([&](const Life& life) { return std::pair(length(life), life.size); });
  try_order();
  // As they come.
  sort_by([&](const Life& life) { return std::pair(SIZE_MAX - life.first, life.size); });
  try_order();
  return best;
}

}  // namespace slipway::lean
