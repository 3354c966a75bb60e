// Elements that are moved along steps, against index arithmetic, element by element.
#include <cstdlib>
#include <numeric>

#include "check.h"
#include "lean/kernels/moves.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

constexpr std::size_t kElements[] = {1, 2, 4, 8};

struct Dimension {
  std::int64_t size, to, from;
};

// What a tensor's elements reach: where the first one must lie so that all lie inside, and how much there is.
struct Room {
  std::int64_t first = 0;
  std::int64_t elements = 1;
};

Room room_of(const std::vector<Dimension>& dimensions, bool to) {
  Room room;
  for (const Dimension& one : dimensions) {
    const std::int64_t reach = (one.size > 0 ? one.size - 1 : 0) * (to ? one.to : one.from);
    room.first += reach < 0 ? -reach : 0;
    room.elements += std::abs(reach);
  }
  return room;
}

void move_by_hand(const std::vector<Dimension>& dimensions, std::size_t at, std::size_t element,
                  std::uint8_t* to, const std::uint8_t* from) {
  if (at == dimensions.size()) {
    std::copy_n(from, element, to);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(element);
  for (std::int64_t i = 0; i < dimensions[at].size; ++i) {
    move_by_hand(dimensions, at + 1, element, to + i * dimensions[at].to * bytes,
                 from + i * dimensions[at].from * bytes);
  }
}

void check_move(const std::vector<Dimension>& dimensions) {
  for (const std::size_t element : kElements) {
    const Room target = room_of(dimensions, true);
    const Room source = room_of(dimensions, false);
    std::vector<std::uint64_t> from((static_cast<std::size_t>(source.elements) * element + 7) / 8);
    std::vector<std::uint64_t> found((static_cast<std::size_t>(target.elements) * element + 7) / 8, ~0ULL);
    auto* bytes = reinterpret_cast<std::uint8_t*>(from.data());
    for (std::size_t i = 0; i < from.size() * 8; ++i) {
      bytes[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
    }
    std::vector<std::uint64_t> expected = found;
    const auto place = [element](std::vector<std::uint64_t>& in, const Room& room) {
      return reinterpret_cast<std::uint8_t*>(in.data()) + room.first * static_cast<std::int64_t>(element);
    };
    move_by_hand(dimensions, 0, element, place(expected, target), place(from, source));
    Move move;
    for (const Dimension& one : dimensions) {
      move.add(one.size, one.to, one.from);
    }
    move.prepare(element);
    move.run(place(found, target), place(from, source));
    CHECK(found == expected);
  }
}

}  // namespace

TEST(moves_of_runs_and_of_single_elements) {
  check_move({});
  check_move({{1, 5, 7}});
  check_move({{30, 1, 1}});
  check_move({{7, 1, 3}});
  check_move({{7, 3, 1}});
  check_move({{4, 9, 1}, {9, 1, 4}});      // rows become columns, short ones
  check_move({{40, 33, 1}, {33, 1, 40}});  // the same in tiles
  check_move({{1, 40, 5}, {40, 1, 7}});
  check_move({{3, 200, 100}, {10, 10, 10}, {10, 1, 1}});  // merged
}

TEST(moves_repeat_and_turn_around) {
  check_move({{5, 12, 0}, {12, 1, 1}});
  check_move({{5, 12, 1}, {12, 1, 0}});
  check_move({{2, 30, -10}, {10, 3, -1}, {3, 1, 0}});
  check_move({{9, 1, -1}});
}

TEST(moves_into_any_memory_order) {
  check_move({{2, 60, 60}, {3, 1, 20}, {4, 15, 5}, {5, 3, 1}});
  check_move({{2, 60, 60}, {3, 20, 1}, {4, 5, 15}, {5, 1, 3}});
}

TEST(moves_of_no_elements_touch_nothing) {
  check_move({{3, 4, 4}, {0, 1, 1}});
  check_move({{0, 1, 1}, {64, 1, 1}});
  Move nothing;
  nothing.add(0, 1, 1);
  nothing.prepare(4);
  nothing.run(nullptr, nullptr);
}

TEST(moves_of_any_number_of_bytes) {
  for (std::size_t count = 0; count < 40; ++count) {
    std::vector<std::uint8_t> from(50);
    std::iota(from.begin(), from.end(), std::uint8_t{1});
    std::vector<std::uint8_t> to(50);
    move_bytes(to.data() + 3, from.data() + 2, count);
    std::vector<std::uint8_t> expected(50);
    std::copy_n(from.begin() + 2, count, expected.begin() + 3);
    CHECK(to == expected);
    // Onto itself, one further.
    expected = from;
    std::copy_backward(expected.begin() + 2, expected.begin() + 2 + static_cast<std::ptrdiff_t>(count),
                       expected.begin() + 3 + static_cast<std::ptrdiff_t>(count));
    move_bytes(from.data() + 3, from.data() + 2, count);
    CHECK(from == expected);
  }
}

TEST(moves_of_picked_elements) {
  const std::vector<std::int64_t> places = {3, 0, 3, 1};
  for (const std::size_t element : kElements) {
    std::vector<std::uint64_t> from = {11, 22, 33, 44};
    std::vector<std::uint64_t> to(4);
    std::vector<std::uint64_t> expected(4);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(from.data());
    auto* wanted = reinterpret_cast<std::uint8_t*>(expected.data());
    for (std::size_t i = 0; i < places.size(); ++i) {
      std::copy_n(bytes + static_cast<std::size_t>(places[i]) * element, element, wanted + i * element);
    }
    pick(element, bytes, places.data(), places.size(), reinterpret_cast<std::uint8_t*>(to.data()));
    CHECK(to == expected);
  }
}

TEST(runs_are_picked_in_any_number_of_bytes) {
  const std::vector<std::int64_t> places = {5, 0, 7, 7, 2};
  for (const std::size_t element : {std::size_t{1}, std::size_t{2}}) {
    for (std::size_t run = element; run < 40; run += element) {
      std::vector<std::uint8_t> from(7 * element + run);
      std::iota(from.begin(), from.end(), std::uint8_t{1});
      std::vector<std::uint8_t> to(places.size() * run + 1, 0xFF);
      pick_runs(run, from.data(), places.data(), static_cast<std::int64_t>(element), places.size(),
                to.data());
      std::vector<std::uint8_t> expected(to.size(), 0xFF);
      for (std::size_t i = 0; i < places.size(); ++i) {
        std::copy_n(from.data() + static_cast<std::size_t>(places[i]) * element, run,
                    expected.data() + i * run);
      }
      CHECK(to == expected);
    }
  }
}
