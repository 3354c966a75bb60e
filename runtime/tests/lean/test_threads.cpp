// Threads of the pool that XNNPACK shares its steps with: when they sleep.
#include <pthreadpool.h>

#if defined(__linux__)
#include <sys/resource.h>

#include <chrono>

#include "check.h"

namespace {

using Clock = std::chrono::steady_clock;

void work_for(std::chrono::microseconds time) {
  const Clock::time_point end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

// How often a thread of this process went to sleep.
long sleeps() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

}  // namespace

TEST(threads_stay_awake_while_one_works_between_shared_steps) {
  const pthreadpool_t pool = pthreadpool_create(2);
  constexpr long kSteps = 200;
  long fewest = std::numeric_limits<long>::max();
  for (int round = 0; round < 5; ++round) {
    const long before = sleeps();
    for (long step = 0; step < kSteps; ++step) {
      work_for(std::chrono::microseconds(100));
      pthreadpool_parallelize_1d(
          pool, [](void*, std::size_t) { work_for(std::chrono::microseconds(2)); }, nullptr, 8, 0);
    }
    fewest = std::min(fewest, sleeps() - before);
  }
  pthreadpool_destroy(pool);
  CHECK(fewest < kSteps / 4);
}

TEST(threads_sleep_when_nothing_is_to_do) {
  const pthreadpool_t pool = pthreadpool_create(2);
  pthreadpool_parallelize_1d(pool, [](void*, std::size_t) {}, nullptr, 8, 0);
  const long before = sleeps();
  work_for(std::chrono::milliseconds(100));
  CHECK(sleeps() > before);
  pthreadpool_destroy(pool);
}
#endif
