#include "arenas.h"

#include <xnnpack.h>

#include <algorithm>
#include <new>

namespace slipway::lean {
namespace {

// A cache line, and more than any vector register of XNNPACK's asks for.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirstShared = 2;  // 0 is reserved, 1 for intermediate values

std::size_t arenas_of(const pte::ExecutionPlan& plan) {
  return plan.non_const_buffer_sizes() == nullptr ? 0 : plan.non_const_buffer_sizes()->size();
}

std::int64_t size_of_arena(const pte::ExecutionPlan& plan, std::size_t arena) {
  return plan.non_const_buffer_sizes()->Get(static_cast<flatbuffers::uoffset_t>(arena));
}

}  // namespace

std::uint8_t* Blocks::allocate(std::size_t bytes) {
  constexpr std::size_t kAround = kAlignment + XNN_EXTRA_BYTES;
  auto* raw = bytes > SIZE_MAX - kAround ? nullptr : new (std::nothrow) std::uint8_t[bytes + kAround]();
  if (raw == nullptr) {
    return nullptr;
  }
  memory_.emplace_back(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  return raw + (kAlignment - address % kAlignment) % kAlignment;
}

SharedArenas::SharedArenas(const pte::Program& program) {
  const auto& plans = *program.execution_plan();
  if (plans.size() < 2) {
    return;
  }
  for (std::size_t arena = kFirstShared; arena < arenas_of(*plans.Get(0)); ++arena) {
    const std::int64_t size = size_of_arena(*plans.Get(0), arena);
    const bool everywhere = std::all_of(plans.begin(), plans.end(), [&](const pte::ExecutionPlan* plan) {
      return arena < arenas_of(*plan) && size_of_arena(*plan, arena) == size;
    });
    if (everywhere && size > 0 && static_cast<std::uint64_t>(size) <= SIZE_MAX) {
      sizes_[arena] = static_cast<std::size_t>(size);
    }
  }
}

std::uint8_t* SharedArenas::memory(std::size_t arena) {
  std::uint8_t*& found = made_[arena];
  if (found == nullptr) {
    found = blocks_.allocate(sizes_.at(arena));
  }
  return found;
}

}  // namespace slipway::lean
