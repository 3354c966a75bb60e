#include <numeric>

#include "check.h"
#include "runner/roofline/roofline.h"
#include "runner/roofline/roofline_loops.h"

namespace {

using namespace slipway;

constexpr std::uint64_t kMega = std::uint64_t{1} << 20;

TEST(roofline_loops_do_all_of_their_work) {
  // As many numbers as the widest loop takes at once, twice.
  constexpr std::size_t kCount = 256;
  alignas(64) float numbers[kCount];
  std::iota(numbers, numbers + kCount, 1.0F);
  const RooflineLoopsList all = roofline_loops();
  CHECK(all.size >= 1);
  for (std::size_t i = 0; i < all.size; ++i) {
    const RooflineLoops& loops = *all.items[i];
    CHECK_EQUAL(loops.multiply_add(4), 4.0 * static_cast<double>(loops.sums));
    CHECK_EQUAL(loops.multiply_add(1024), 1024.0 * static_cast<double>(loops.sums));
    CHECK(kCount % loops.block == 0);
    CHECK_EQUAL(loops.read(numbers, kCount), 0.5 * kCount * (kCount + 1));
    const auto block = static_cast<double>(loops.block);
    CHECK_EQUAL(loops.read(numbers, loops.block), 0.5 * block * (block + 1));
  }
  CHECK(&best_roofline_loops() == all.items[all.size - 1]);
}

TEST(roofline_reads_more_than_the_caches_hold_and_less_than_the_memory_has) {
  CHECK_EQUAL(roofline_buffer(0, {}), 128 * kMega);
  CHECK_EQUAL(roofline_buffer(kMega, {}), 128 * kMega);
  CHECK_EQUAL(roofline_buffer(100 * kMega, {}), 400 * kMega);
  CHECK_EQUAL(roofline_buffer(0, 4096 * kMega), 128 * kMega);
  CHECK_EQUAL(roofline_buffer(0, 320 * kMega), 80 * kMega);
  CHECK_EQUAL(roofline_buffer(0, 20 * kMega), 16 * kMega);
  CHECK_EQUAL(roofline_buffer(100 * kMega, 320 * kMega), 200 * kMega);
}

}  // namespace
