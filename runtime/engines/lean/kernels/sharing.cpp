#include "lean/kernels/sharing.h"

#include <atomic>
#include <new>
#include <utility>

namespace slipway::lean {
namespace {

// Elements that take longer than waking a thread, about 5 us.
constexpr std::size_t kWorthSharing = 32768;
// Parts for each thread, so that one that is held up does not hold up the others.
constexpr std::size_t kPartsEach = 4;

thread_local pthreadpool_t threads_of_call = nullptr;

struct Work {
  void (*work)(const void*, std::size_t, std::size_t);
  const void* context;
  std::atomic<bool> no_memory{false};
};

void work_part(void* context, std::size_t first, std::size_t count) {
  auto* all = static_cast<Work*>(context);
  try {
    all->work(all->context, first, first + count);
  } catch (const std::bad_alloc&) {  // which would end the program on a thread of the pool
    all->no_memory = true;
  }
}

std::size_t parts() {
  return pthreadpool_get_threads_count(threads_of_call) * kPartsEach;
}

// The axis along which the places are divided best.
std::size_t shared_axis(const Axes& axes, std::size_t rank, std::size_t unit) {
  std::size_t best = 0;
  std::size_t most = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::size_t pieces = static_cast<std::size_t>(axes.items[d].size) / (d + 1 == axes.rank ? unit : 1);
    if (most < parts() && pieces > most) {
      best = d;
      most = pieces;
    }
  }
  return best;
}

}  // namespace

void set_threads_of_call(pthreadpool_t threads) {
  threads_of_call = threads;
}

bool worth_sharing(std::size_t elements) {
  return elements >= kWorthSharing && parts() > kPartsEach;
}

void share(std::size_t count, std::size_t elements, void (*work)(const void*, std::size_t, std::size_t),
           const void* context) {
  if (count < 2 || !worth_sharing(elements)) {
    return work(context, 0, count);
  }
  Work all{work, context};
  const std::size_t tile = (count + parts() - 1) / parts();
  // What is called here on this thread cannot divide its own work once more.
  const pthreadpool_t threads = std::exchange(threads_of_call, nullptr);
  pthreadpool_parallelize_1d_tile_1d(threads, work_part, &all, count, tile, 0);
  threads_of_call = threads;
  if (all.no_memory) {
    throw std::bad_alloc();
  }
}

void share_axes(const Axes& axes, std::size_t rank, std::size_t unit, std::size_t cost,
                void (*f)(const void*, const Axes&), const void* context) {
  const std::size_t elements = axes.count() * cost;
  if (rank == 0 || !worth_sharing(elements)) {
    return f(context, axes);
  }
  const std::size_t d = shared_axis(axes, rank, unit);
  const auto size = static_cast<std::size_t>(axes.items[d].size);
  const std::size_t each = d + 1 == axes.rank ? unit : 1;
  share((size + each - 1) / each, elements, [&](std::size_t first, std::size_t last) {
    f(context, axes.part(d, first * each, last * each < size ? last * each : size));
  });
}

}  // namespace slipway::lean
