// Memory that is there before it is written.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

#include "platform.h"

namespace slipway::lean {

// Lets the system find and clear pages on a thread of its own, a little ahead of whoever fills them: half of
// the time that packing a large program's weights takes is that. Never far ahead, so that what is not filled
// in the end takes no memory either. Where the system cannot do it, or has no thread to spare, nothing
// happens.
class Prefault {
 public:
  // `size` bytes of `pages` are about to be written, from the first on. The pages are to outlive this.
  Prefault(const Pages& pages, std::size_t size);
  Prefault(const Prefault&) = delete;
  Prefault& operator=(const Prefault&) = delete;
  ~Prefault();

  // Everything before this offset (bytes) is written.
  void written(std::size_t offset);

 private:
  void run();

  const Pages& pages_;
  std::size_t size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::size_t written_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace slipway::lean
