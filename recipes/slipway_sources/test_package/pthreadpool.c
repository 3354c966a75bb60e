#include <pthreadpool.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_size_t sum;

static void add(void* context, size_t i) {
  (void)context;
  atomic_fetch_add(&sum, i);
}

// Adds up 0 to 9999 on four threads, twice with the same pool: every index must come exactly once.
int main(void) {
  pthreadpool_t pool = pthreadpool_create(4);
  if (pool == NULL) {
    return 1;
  }
  int good = pthreadpool_get_threads_count(pool) == 4;
  for (int round = 0; round < 2; round++) {
    atomic_store(&sum, 0);
    pthreadpool_parallelize_1d(pool, add, NULL, 10000, 0);
    good = good && atomic_load(&sum) == 49995000;
  }
  pthreadpool_destroy(pool);
  puts(good ? "pthreadpool: four threads, every index once" : "pthreadpool: wrong");
  return !good;
}
