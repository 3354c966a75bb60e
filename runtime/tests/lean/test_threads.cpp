// Threads of the pool: what kernels share with them, and when they sleep between XNNPACK's steps.
#include <pthreadpool.h>

#include "lean/kernels/sharing.h"
#include "views.h"

using namespace slipway;
using namespace slipway::lean;

TEST(kernels_share_their_work_and_the_bits_stay_the_same) {
  const pthreadpool_t pool = pthreadpool_create(3);
  const Shape shapes[] = {{70001}, {3, 37, 509}, {5000, 17}, {17, 5000}, {2, 3, 4, 5001}};
  for (const Shape& shape : shapes) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32}) {
      std::size_t count = 1;
      for (const std::int64_t size : shape) {
        count *= static_cast<std::size_t>(size);
      }
      std::vector<double> numbers = pseudo_numbers(count, 1);
      std::for_each(numbers.begin(), numbers.end(), [](double& number) { number *= 1000; });
      OwnedTensor in(shape, dtype, numbers);
      OwnedTensor row({shape.back()}, dtype, {numbers.begin(), numbers.begin() + shape.back()});
      OwnedTensor flags(shape, DType::kBool, numbers);
      const std::int64_t last = static_cast<std::int64_t>(shape.size()) - 1;
      const auto both = [&](const char* name, const Shape& result, DType type, std::vector<EValue> values) {
        OwnedTensor alone(result, type);
        OwnedTensor shared(result, type);
        values.emplace_back(alone.view);
        CHECK_EQUAL(call_kernel(name, values).message(), "");
        values.back() = shared.view;
        CHECK_EQUAL(call_kernel(name, values, pool).message(), "");
        CHECK(alone.bytes == shared.bytes);
        CHECK(std::count(shared.bytes.begin(), shared.bytes.end(), 0) <
              static_cast<std::ptrdiff_t>(shared.bytes.size()));
      };
      Shape turned = shape;
      std::swap(turned.front(), turned.back());
      both("aten::mul.out", shape, dtype, {in.view, row.view});
      both("aten::where.self_out", shape, dtype, {flags.view, in.view, row.view});
      both("aten::transpose_copy.int_out", turned, dtype, {in.view, std::int64_t{0}, last});
      const std::int64_t dim = last == 0 ? 0 : last - 1;
      Shape reduced = shape;
      reduced.erase(reduced.begin() + dim);
      both("aten::argmax.out", reduced, DType::kInt64, {in.view, dim, false});
      if (dtype != DType::kInt32) {
        both("aten::_softmax.out", shape, dtype, {in.view, dim, false});
        both("aten::_softmax.out", shape, dtype, {in.view, last, false});
      }
    }
  }
  pthreadpool_destroy(pool);
}

TEST(memory_that_a_part_lacks_is_lacking_to_the_call) {
  const pthreadpool_t pool = pthreadpool_create(2);
  set_threads_of_call(pool);
  DOCTEST_CHECK_THROWS_AS(share(8, 1U << 20U, [](std::size_t, std::size_t) { throw std::bad_alloc(); }),
                          std::bad_alloc);
  share(8, 1U << 20U, [](std::size_t first, std::size_t last) { CHECK(first < last); });
  set_threads_of_call(nullptr);
  pthreadpool_destroy(pool);
}

#if defined(__linux__)
#include <sys/resource.h>

#include <chrono>

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
