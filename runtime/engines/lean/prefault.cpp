#include "prefault.h"

#include <algorithm>
#include <system_error>

namespace slipway::lean {
namespace {

constexpr std::size_t kStep = std::size_t{1} << 20;
constexpr std::size_t kAhead = std::size_t{4} << 20;

}  // namespace

Prefault::Prefault(const Pages& pages, std::size_t size) : pages_(pages), size_(size) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // Whoever writes brings the pages in, then.
  }
}

Prefault::~Prefault() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Prefault::written(std::size_t offset) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    written_ = offset;
  }
  wake_.notify_one();
}

void Prefault::run() {
  for (std::size_t there = 0; there < size_;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return ending_ || there < written_ + kAhead; });
      if (ending_) {
        return;
      }
    }
    const std::size_t step = std::min(kStep, size_ - there);
    if (!pages_.populate(there, step)) {
      return;
    }
    there += step;
  }
}

}  // namespace slipway::lean
