#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "exercise.h"

namespace {

// A block: a page with its description, pages that end with what was asked for, a page that nobody may touch.
// What alignment leaves free on either side has a pattern that is looked at when the block is given back.
struct Description {
  void* start;  // of all that is mapped for it
  std::size_t mapped;
  std::size_t size;
  std::uint8_t* end;  // of its pages
};

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLeastAlignment = 16;
constexpr std::size_t kMostFilled = std::size_t{1} << 24;
constexpr std::uint8_t kAround = 0xCA;

std::atomic<std::uint8_t> filling{0};

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::uint8_t* page_of(void* memory) {
  return reinterpret_cast<std::uint8_t*>(reinterpret_cast<std::uintptr_t>(memory) / kPage * kPage);
}

Description& description_of(void* memory) {
  return *reinterpret_cast<Description*>(page_of(memory) - kPage);
}

void* take(std::size_t size, std::size_t alignment, bool zero) {
  if (size > SIZE_MAX / 4 || alignment > SIZE_MAX / 4) {
    errno = ENOMEM;
    return nullptr;
  }
  alignment = alignment < kLeastAlignment ? kLeastAlignment : alignment;
  const std::size_t kept = rounded_up(size == 0 ? 1 : size, alignment);
  const std::size_t pages = rounded_up(kept, kPage);
  // Alignment beyond a page: as much more as it takes.
  const std::size_t mapped = pages + 2 * kPage + (alignment > kPage ? alignment : 0);
  void* found = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) {
    errno = ENOMEM;
    return nullptr;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(found) + kPage;
  auto* end =
      reinterpret_cast<std::uint8_t*>(rounded_up(first + pages, alignment > kPage ? alignment : kPage));
  std::uint8_t* memory = end - kept;
  ::mprotect(end, kPage, PROT_NONE);
  description_of(memory) = {found, mapped, size, end};
  std::memset(page_of(memory), kAround, static_cast<std::size_t>(memory - page_of(memory)));
  std::memset(memory + size, kAround, kept - size);
  if (!zero && size <= kMostFilled) {
    std::memset(memory, filling, size);
  }
  return memory;
}

[[noreturn]] void complain(const char* what) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, what, std::strlen(what));
  ::abort();
}

void give(void* memory) {
  if (memory == nullptr) {
    return;
  }
  const Description block = description_of(memory);
  auto* bytes = static_cast<std::uint8_t*>(memory);
  for (const std::uint8_t* byte = page_of(memory); byte < bytes; ++byte) {
    if (*byte != kAround) {
      complain("guarded memory: written before its start\n");
    }
  }
  for (const std::uint8_t* byte = bytes + block.size; byte < block.end; ++byte) {
    if (*byte != kAround) {
      complain("guarded memory: written behind its end\n");
    }
  }
  const int before = errno;
  ::munmap(block.start, block.mapped);
  errno = before;
}

}  // namespace

namespace slipway::fuzz {

void fill_memory_with(std::uint8_t byte) {
  filling = byte;
}

}  // namespace slipway::fuzz

// What replaces the C library's functions.
extern "C" {

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  return take(size, kLeastAlignment, false);
}

__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  return size != 0 && count > SIZE_MAX / size ? nullptr : take(count * size, kLeastAlignment, true);
}

__attribute__((visibility("default"))) void free(void* memory) {
  give(memory);
}

__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  void* other = take(size, kLeastAlignment, false);
  if (memory != nullptr && other != nullptr) {
    const std::size_t had = description_of(memory).size;
    std::memcpy(other, memory, had < size ? had : size);
    give(memory);
  }
  return other;
}

__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return take(size, alignment, false);
}

__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t size) {
  return take(size, alignment, false);
}

__attribute__((visibility("default"))) int posix_memalign(void** memory, std::size_t alignment,
                                                          std::size_t size) {
  *memory = take(size, alignment, false);
  return *memory == nullptr ? ENOMEM : 0;
}

__attribute__((visibility("default"))) std::size_t malloc_usable_size(void* memory) {
  return memory == nullptr ? 0 : description_of(memory).size;
}

}  // extern "C"
