#include "runner/roofline.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "runner/report/json.h"
#include "runner/roofline_loops.h"

namespace slipway {

#ifdef SLIPWAY_NO_ROOFLINE
// A runner that was linked for some programs has nothing else.
Result<Roofline> measure_roofline(unsigned /*threads*/) {
  return Status(Code::kUsage, "This runner was linked for some programs only and measures no roofline.",
                "build one without --ops-from");
}

#else

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Long enough for clocks to rise, and the best window of many is free of what else the machine did.
constexpr milliseconds kEach(240);
constexpr milliseconds kWindow(3);

// Of one call: some ten to some hundred microseconds.
constexpr std::size_t kSteps = 16384;
constexpr std::size_t kChunk = std::size_t{1} << 18;  // numbers

constexpr std::uint64_t kLargestBuffer = std::uint64_t{512} << 20;

// The widest that this program has loops for and this processor can run.
const RooflineLoops& best_loops() {
#if defined(__i386__) || defined(__x86_64__)
  const std::vector<std::string> features = cpu_info().features;
  const auto has = [&](const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  if (has("avx2")) {
    return has("avx512f") ? avx512f::kRoofline : avx2::kRoofline;
  }
#endif
  return ON(kLoops);
}

// What all threads do: operations in registers or, where there are numbers, reading them. Each thread reads
// its own part from its begin to its end, again and again.
struct Task {
  const RooflineLoops& loops;
  const float* numbers;
  std::size_t part;
};

// What one thread did in a window.
struct Share {
  double rate = 0;  // operations or bytes a second
  bool wrong = false;
  std::size_t position = 0;
};

std::uint64_t do_piece(const Task& task, std::size_t thread, Share* share) {
  double sum = 0;
  std::uint64_t expected = 0;
  std::uint64_t done = 0;
  if (task.numbers == nullptr) {
    expected = std::uint64_t{kSteps} * task.loops.sums;
    sum = task.loops.multiply_add(kSteps);
    done = 2 * expected;
  } else {
    expected = std::min(kChunk, task.part - share->position);
    sum = task.loops.read(task.numbers + thread * task.part + share->position,
                          static_cast<std::size_t>(expected));
    share->position = (share->position + static_cast<std::size_t>(expected)) % task.part;
    done = expected * sizeof(float);
  }
  share->wrong = share->wrong || sum != static_cast<double>(expected);
  return done;
}

void work_in_window(const Task& task, std::size_t thread, Share* share) {
  const Clock::time_point start = Clock::now();
  std::uint64_t done = 0;
  std::chrono::duration<double> took{};
  do {
    done += do_piece(task, thread, share);
    took = Clock::now() - start;
  } while (took < kWindow);
  share->rate = static_cast<double>(done) / took.count();
}

// The best window of all threads together, in 10^9 a second.
Status best_rate(const Task& task, unsigned threads, double* best) {
  std::vector<Share> shares(threads);
  const Clock::time_point end = Clock::now() + kEach;
  do {
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < threads; ++i) {
      others.emplace_back(work_in_window, task, i, &shares[i]);
    }
    work_in_window(task, 0, &shares[0]);
    for (std::thread& other : others) {
      other.join();
    }
    double all = 0;
    for (const Share& share : shares) {
      all += share.rate;
      if (share.wrong) {
        return {Code::kExecution, "The processor adds up wrongly.",
                "check the device's power supply, cooling and memory"};
      }
    }
    *best = std::max(*best, all / 1e9);
  } while (Clock::now() < end);
  return {};
}

}  // namespace

Result<Roofline> measure_roofline(unsigned threads) {
  SLIPWAY_RETURN_IF_ERROR(check_threads(threads));
  Roofline found;
  const RooflineLoops& loops = best_loops();
  found.feature = loops.feature;
  // Much more than caches hold, where there is as much, also of 32-bit addresses in one piece.
  const std::optional<MemoryLeft> left = memory_left();
  found.buffer_bytes =
      std::min({kLargestBuffer, left ? left->bytes / 4 : kLargestBuffer, std::uint64_t{SIZE_MAX / 8}});
  found.buffer_bytes = std::max(found.buffer_bytes, kAlwaysTried);
  const Pages pages = Pages::allocate(static_cast<std::size_t>(found.buffer_bytes));
  if (pages.data() == nullptr) {
    return Status(Code::kMemory, "Out of memory for what the roofline reads.",
                  "end other programs on this device");
  }
  // Written once: pages that were never written may all be the same one.
  auto* numbers = reinterpret_cast<float*>(pages.data());
  const std::size_t count = pages.size() / sizeof(float);
  std::fill_n(numbers, count, 1.0F);
  found.points.resize(threads > 1 ? 2 : 1);
  found.points.back().threads = threads;
  for (RooflinePoint& point : found.points) {
    const std::size_t part = count / point.threads / loops.block * loops.block;
    SLIPWAY_RETURN_IF_ERROR(best_rate({loops, nullptr, 0}, point.threads, &point.gflops));
    SLIPWAY_RETURN_IF_ERROR(best_rate({loops, numbers, part}, point.threads, &point.gbytes_per_s));
  }
  return found;
}

#endif

std::string roofline_json(const Roofline& found, const CpuInfo& cpu) {
  JsonWriter json(JsonWriter::Form::kLines);
  json.begin_object()
      .members("schema", 1)
      .key("roofline")
      .list(found.points, [&](const RooflinePoint& point) {
        json.object("threads", point.threads, "feature", found.feature, "gflops", point.gflops,
                    "gbytes_per_s", point.gbytes_per_s);
      });
  json.members("buffer_bytes", found.buffer_bytes).key("cpu");
  return json.object("arch", cpu.arch, "model", cpu.model, "cores", cpu.cores).end_object().text();
}

}  // namespace slipway
