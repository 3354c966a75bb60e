#include <numeric>

#include "check.h"
#include "runner/options.h"
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

TEST(roofline_says_what_was_measured) {
  Roofline found;
  found.feature = "neon";
  found.buffer_bytes = 128 * kMega;
  found.points = {{1, 12.5, 2.25}, {4, 50, 3}};
  CpuInfo cpu;
  cpu.arch = "armv7l";
  cpu.cores = 4;
  const std::string text = roofline_text(found, cpu);
  CHECK_CONTAINS(
      text, "armv7l\n1 thread   12.5 GFLOP/s in float32 (neon), 2.25 GB/s read from memory\n4 threads  50 G");
  CHECK_CONTAINS(text, "128 MiB, the caches of the last level have an unknown size\n");
  found.cache_bytes = kMega / 2;
  CHECK_CONTAINS(roofline_text(found, cpu), "have 0.5 MiB\n");
  CHECK_CONTAINS(
      roofline_json(found, cpu),
      R"({"threads":4,"feature":"neon","gflops":50.000000,"gbytes_per_s":3.000000}],)"
      R"("buffer_bytes":134217728,"cache_bytes":524288,"cpu":{"arch":"armv7l","model":"","cores":4}})");
}

TEST(roofline_with_too_many_threads_is_refused) {
  const Result<Roofline> found = measure_roofline(kMostRooflineThreads + 1);
  CHECK(!found.ok());
  CHECK(found.status().code() == Code::kUsage);
}

TEST(roofline_needs_no_program_and_goes_alone) {
  const Result<Options> options = parse_options({"--roofline", "--cpu_threads=3", "--json"});
  CHECK(options.ok());
  CHECK(options.value().action == Action::kRoofline);
  CHECK_EQUAL(options.value().cpu_threads, 3U);
  CHECK(!parse_options({"--roofline", "--describe", "--model_path=a"}).ok());
}

}  // namespace
