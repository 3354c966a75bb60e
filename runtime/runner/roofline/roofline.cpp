#include "runner/roofline/roofline.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <system_error>
#include <thread>
#include <vector>

#include "base/platform.h"
#include "runner/report/json.h"
#include "runner/roofline/roofline_loops.h"

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

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

// Not inline: it is small next to the strings and lists of a status.
__attribute__((noinline)) Status refusal(Code code, const char* message, const char* fix) {
  return {code, message, fix};
}

// What all threads do: operations in registers or, where there are numbers, reading them. Each thread reads
// its own part from its begin to its end, again and again.
struct Task {
  const RooflineLoops& loops;
  unsigned threads;
  const float* numbers;
  std::size_t part;
};

// What one thread did in a window.
struct Share {
  Clock::time_point start;
  Clock::time_point end;
  std::uint64_t done = 0;  // operations or bytes
  bool wrong = false;      // ever
  std::size_t position = 0;
};

std::uint64_t do_piece(const Task& task, unsigned thread, Share* share) {
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

void work_in_window(const Task& task, unsigned thread, Share* share) {
  share->done = 0;
  share->start = Clock::now();
  do {
    share->done += do_piece(task, thread, share);
    share->end = Clock::now();
  } while (share->end - share->start < kWindow);
}

// All threads of one measurement.
class Crew {
 public:
  explicit Crew(const Task& task) : task_(task), shares_(task.threads) {}

  // The best window, in 10^9 a second.
  Status best_rate(double* best) {
    std::vector<std::thread> others(task_.threads - 1);
    unsigned running = 1;
    Status status;
    try {
      for (std::thread& other : others) {
        other = std::thread(&Crew::follow, this, running);
        ++running;
      }
    } catch (const std::system_error&) {
      status =
          refusal(Code::kExecution, "The system starts no more threads.", "give fewer with --cpu_threads");
    }
    const Clock::time_point end = Clock::now() + kEach;
    while (status.ok() && (*best == 0 || Clock::now() < end)) {
      meet();
      work_in_window(task_, 0, &shares_[0]);
      meet();
      *best = std::max(*best, rate() / 1e9);
      if (wrong_) {
        status = refusal(Code::kExecution, "The processor adds up wrongly.",
                         "check the device's power supply, cooling and memory");
      }
    }
    over_ = true;
    for (unsigned i = 0; i + 1 < running; ++i) {
      others[i].join();
    }
    return status;
  }

 private:
  void follow(unsigned thread) {
    for (;;) {
      meet();
      if (over_) {
        return;
      }
      work_in_window(task_, thread, &shares_[thread]);
      meet();
    }
  }

  // Returns when all threads have come here, or when all is over.
  void meet() {
    const unsigned round = round_;
    if (++arrived_ == task_.threads) {
      arrived_ = 0;
      ++round_;
      return;
    }
    while (round_ == round && !over_) {
      std::this_thread::yield();
    }
  }

  // From the first start to the last end. Fast threads did more.
  double rate() {
    Clock::time_point start = shares_[0].start;
    Clock::time_point end = shares_[0].end;
    std::uint64_t done = 0;
    for (const Share& share : shares_) {
      start = std::min(start, share.start);
      end = std::max(end, share.end);
      done += share.done;
      wrong_ = wrong_ || share.wrong;
    }
    return static_cast<double>(done) / std::chrono::duration<double>(end - start).count();
  }

  Task task_;
  std::vector<Share> shares_;
  bool wrong_ = false;
  std::atomic<unsigned> arrived_{0};
  std::atomic<unsigned> round_{0};
  std::atomic<bool> over_{false};
};

}  // namespace

std::uint64_t roofline_buffer(std::uint64_t caches, std::optional<std::uint64_t> left) {
  const std::uint64_t wanted = std::max(4 * caches, 128 * kMebibyte);
  const std::uint64_t least = std::max(2 * caches, 16 * kMebibyte);
  return left ? std::min(wanted, std::max(least, *left / 4)) : wanted;
}

Result<Roofline> measure_roofline(unsigned threads) {
  static_assert(kMostRooflineThreads == 1024, "the message says so");
  if (threads > kMostRooflineThreads) {
    return refusal(Code::kUsage, "--roofline takes at most 1024 threads.",
                   "leave --cpu_threads out for one a physical core");
  }
  Roofline found;
  const RooflineLoops& loops = best_roofline_loops();
  found.feature = loops.feature;
  found.cache_bytes = last_level_caches();
  const std::optional<MemoryLeft> left = memory_left();
  found.buffer_bytes =
      roofline_buffer(found.cache_bytes, left ? left->bytes : std::optional<std::uint64_t>());
  // Of the addresses of 32 bits there is no more to have in one piece.
  found.buffer_bytes = std::min<std::uint64_t>(found.buffer_bytes, SIZE_MAX / 8);
  SLIPWAY_RETURN_IF_ERROR(check_room(found.buffer_bytes, "what the roofline reads"));
  const Pages pages = Pages::allocate(static_cast<std::size_t>(found.buffer_bytes));
  if (pages.data() == nullptr) {
    return refusal(Code::kMemory, "Out of memory for what the roofline reads.",
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
    SLIPWAY_RETURN_IF_ERROR(Crew({loops, point.threads, nullptr, 0}).best_rate(&point.gflops));
    SLIPWAY_RETURN_IF_ERROR(Crew({loops, point.threads, numbers, part}).best_rate(&point.gbytes_per_s));
  }
  return found;
}

#if defined(_WIN32)

std::uint64_t last_level_caches(const std::string& /*root*/) {
  DWORD bytes = 0;
  ::GetLogicalProcessorInformation(nullptr, &bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> rows(bytes /
                                                         sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  if (rows.empty() || ::GetLogicalProcessorInformation(rows.data(), &bytes) == 0) {
    return 0;
  }
  BYTE last = 0;
  std::uint64_t all = 0;
  for (const SYSTEM_LOGICAL_PROCESSOR_INFORMATION& row : rows) {
    if (row.Relationship != RelationCache || row.Cache.Level < last) {
      continue;
    }
    all = (row.Cache.Level > last ? 0 : all) + row.Cache.Size;
    last = row.Cache.Level;
  }
  return all;
}

#elif defined(__APPLE__)

namespace {

std::uint64_t sysctl_number(const std::string& key) {
  std::uint64_t value = 0;  // of 32 or 64 bits, little-endian
  std::size_t size = sizeof(value);
  return ::sysctlbyname(key.c_str(), &value, &size, nullptr, 0) == 0 ? value : 0;
}

}  // namespace

// An Intel Mac has a third level, one of Apple's own processors a second one for each cluster. The cache that
// these share with the graphics is not reported.
std::uint64_t last_level_caches(const std::string& /*root*/) {
  const std::uint64_t third = sysctl_number("hw.l3cachesize");
  if (third != 0) {
    return third;
  }
  std::uint64_t all = 0;
  for (const char* level : {"hw.perflevel0.", "hw.perflevel1."}) {
    const std::string key = level;
    const std::uint64_t shared_by = sysctl_number(key + "cpusperl2");
    if (shared_by != 0) {
      all += sysctl_number(key + "l2cachesize") * (sysctl_number(key + "physicalcpu") / shared_by);
    }
  }
  return all;
}

#else

std::uint64_t last_level_caches(const std::string& root) {
  unsigned long last = 0;
  std::map<std::string, std::uint64_t> caches;  // by the processors that share one
  for (int cpu = 0;; ++cpu) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    if (!exists(folder)) {
      break;
    }
    for (int index = 0;; ++index) {
      const std::string cache = folder + "/cache/index" + std::to_string(index) + "/";
      const unsigned long level = std::strtoul(system_text(cache + "level").c_str(), nullptr, 10);
      if (level == 0) {
        break;
      }
      if (level > last) {
        caches.clear();
        last = level;
      }
      if (level == last) {
        // In KiB: "32768K".
        caches[system_text(cache + "shared_cpu_list")] =
            std::strtoull(system_text(cache + "size").c_str(), nullptr, 10) * 1024;
      }
    }
  }
  std::uint64_t all = 0;
  for (const auto& [shared_by, bytes] : caches) {
    all += bytes;
  }
  return all;
}

#endif

#endif

std::string roofline_json(const Roofline& found, const CpuInfo& cpu) {
  JsonWriter json;
  json.begin_object().member("schema", 1).key("roofline").begin_array();
  for (const RooflinePoint& point : found.points) {
    json.begin_object().member("threads", point.threads).member("feature", found.feature);
    json.member("gflops", point.gflops).member("gbytes_per_s", point.gbytes_per_s).end_object();
  }
  json.end_array().member("buffer_bytes", found.buffer_bytes).member("cache_bytes", found.cache_bytes);
  json.key("cpu").begin_object().member("arch", cpu.arch).member("model", cpu.model);
  return json.member("cores", cpu.cores).end_object().end_object().text();
}

std::string roofline_text(const Roofline& found, const CpuInfo& cpu) {
  char line[160];
  std::string text = "processor  " + (cpu.model.empty() ? cpu.arch : cpu.model) + "\n";
  for (const RooflinePoint& point : found.points) {
    std::snprintf(line, sizeof(line), "%-11s%.4g GFLOP/s in float32 (%s), %.4g GB/s read from memory\n",
                  (std::to_string(point.threads) + (point.threads == 1 ? " thread" : " threads")).c_str(),
                  point.gflops, found.feature.c_str(), point.gbytes_per_s);
    text += line;
  }
  std::snprintf(line, sizeof(line), "read       %llu MiB, the caches of the last level have ",
                static_cast<unsigned long long>(found.buffer_bytes >> 20));
  text += line;
  if (found.cache_bytes == 0) {
    return text + "an unknown size\n";
  }
  std::snprintf(line, sizeof(line), "%.4g MiB\n", static_cast<double>(found.cache_bytes) / (1 << 20));
  return text + line;
}

}  // namespace slipway
