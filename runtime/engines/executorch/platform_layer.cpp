#include "platform_layer.h"

#include <executorch/runtime/platform/platform.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/text.h"

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
namespace {

// Bounded, so that a kernel which logs for every element does not eat the memory.
constexpr std::size_t kMostLogged = 2000;

struct Log {
  std::mutex mutex;
  std::string errors;
  AbortHandler on_abort = nullptr;
};

Log& log() {
  static Log instance;
  return instance;
}

void emit(et_timestamp_t, et_pal_log_level_t level, const char* filename, const char*, std::size_t line,
          const char* message, std::size_t length) {
  if (level != kError && level != kFatal) {
    return;
  }
  const std::string text = printable({message, length});
  std::fprintf(stderr, "executorch: %s:%zu: %s\n", filename, line, text.c_str());
  Log& sink = log();
  const std::lock_guard<std::mutex> lock(sink.mutex);
  if (sink.errors.size() + text.size() < kMostLogged) {
    sink.errors += (sink.errors.empty() ? "" : "; ") + text;
  }
}

[[noreturn]] void give_up() {
  const std::string errors = take_logged_errors();
  if (log().on_abort != nullptr) {
    log().on_abort(errors.empty() ? "no reason given" : errors.c_str());
  }
  std::abort();
}

}  // namespace

void install_platform_layer(AbortHandler on_abort) {
  log().on_abort = on_abort;
  // Once: the runtime warns of a second time.
  static const bool registered = executorch::runtime::register_pal(executorch::runtime::PalImpl::create(
      nullptr, give_up, nullptr, nullptr, emit, nullptr, nullptr, __FILE__));
  static_cast<void>(registered);
}

std::string take_logged_errors() {
  Log& sink = log();
  const std::lock_guard<std::mutex> lock(sink.mutex);
  return std::exchange(sink.errors, {});
}

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
