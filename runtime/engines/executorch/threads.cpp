#include "threads.h"

#include <cstddef>
#include <cstdint>
#include <string>

// The SDK exports these functions but ships no header for them; only what is used is declared, and no object
// is ever made here, so the class's members do not matter.
namespace executorch::extension::threadpool {

class ThreadPool {
 public:
  std::size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(std::uint32_t num_threads);
};

ThreadPool* get_threadpool();

}  // namespace executorch::extension::threadpool

namespace slipway {

Result<unsigned> reset_thread_pool(unsigned count) {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr) {
    return Status(Code::kExecution, "The engine has no thread pool.",
                  "raise the limit on threads (ulimit -u)");
  }
  // "unsafe" while work is under way: nothing is loaded yet.
  if (pool->get_thread_count() != count && !pool->_unsafe_reset_threadpool(count)) {
    return Status(Code::kExecution, "The engine cannot make " + std::to_string(count) + " threads.",
                  "give a smaller --cpu_threads");
  }
  return static_cast<unsigned>(pool->get_thread_count());
}

}  // namespace slipway
