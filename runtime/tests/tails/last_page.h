// Inputs at the end of memory.
#pragma once

#include <xnnpack.h>

#include <cstdlib>

#ifndef _WIN32
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "check.h"

namespace tails {

inline constexpr std::size_t kVectorBytes = 32;

// Memory behind which no page is, so that who reads further than XNNPACK may is seen.
class LastPage {
 public:
  std::uint8_t* put(const std::vector<std::uint8_t>& bytes) {
    // QEMU reads also what an x86 instruction with a mask leaves out.
    const bool emulated = std::getenv("SLIPWAY_TESTS_EMULATED") != nullptr;
    const std::size_t behind = XNN_EXTRA_BYTES + (emulated ? kVectorBytes : 0);
    const std::size_t size = bytes.size() + behind;
    reserve(size);
    std::uint8_t* at = end_ - size;
    std::memcpy(at, bytes.data(), bytes.size());
    std::memset(at + bytes.size(), 0xFF, behind);  // NaN
    return at;
  }
#ifndef _WIN32
  ~LastPage() {
    if (memory_ != nullptr) {
      munmap(memory_, size_);
    }
  }

 private:
  void reserve(std::size_t size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t needed = (size + page - 1) / page * page + page;
    if (needed <= size_) {
      return;
    }
    if (memory_ != nullptr) {
      munmap(memory_, size_);
    }
    size_ = needed;
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory_ != MAP_FAILED);
    end_ = static_cast<std::uint8_t*>(memory_) + size_ - page;
    CHECK(mprotect(end_, page, PROT_NONE) == 0);
  }

  void* memory_ = nullptr;
  std::size_t size_ = 0;
#else
 private:
  void reserve(std::size_t size) {
    memory_.resize(std::max(size, memory_.size()));
    end_ = memory_.data() + memory_.size();
  }

  std::vector<std::uint8_t> memory_;
#endif
  std::uint8_t* end_ = nullptr;
};

}  // namespace tails
