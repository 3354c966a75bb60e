#include "xnn_memory.h"

#ifdef __linux__
#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#endif

namespace slipway::lean {

#ifdef __linux__
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;

// A graph's intermediate values take megabytes, and each execution walks through all of them: with large
// pages the processor looks up addresses less often. The last, incomplete one stays in small pages, so that
// nothing takes more memory than before.
void* aligned(std::size_t alignment, std::size_t size) {
  const bool large = size >= kLargePage;
  void* memory = nullptr;
  if (::posix_memalign(&memory, large ? kLargePage : alignment, size) != 0) {
    return nullptr;
  }
  if (large) {
    ::madvise(memory, size - size % kLargePage, MADV_HUGEPAGE);
  }
  return memory;
}

}  // namespace

const xnn_allocator* memory_for_xnnpack() {
  static const xnn_allocator allocator = {
      nullptr,
      [](void*, std::size_t size) { return std::malloc(size); },
      [](void*, void* memory, std::size_t size) { return std::realloc(memory, size); },
      [](void*, void* memory) { std::free(memory); },
      [](void*, std::size_t alignment, std::size_t size) { return aligned(alignment, size); },
      [](void*, void* memory) { std::free(memory); },
  };
  return &allocator;
}
#else
const xnn_allocator* memory_for_xnnpack() {
  return nullptr;
}
#endif

}  // namespace slipway::lean
