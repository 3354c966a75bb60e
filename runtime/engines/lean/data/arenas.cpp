#include "lean/data/arenas.h"

#include <xnnpack.h>

#include <algorithm>
#include <new>
#include <utility>

#include "program_info.h"

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

std::vector<std::size_t> arenas_used(const pte::ExecutionPlan& plan) {
  std::vector<std::size_t> used(arenas_of(plan));
  for (const pte::EValue* value : *plan.values()) {
    const auto* tensor = value->val_as_Tensor();
    const auto* allocation = tensor == nullptr ? nullptr : tensor->allocation_info();
    if (allocation != nullptr) {
      // find_fault has seen that it ends within its memory's size, which is 63 bits.
      const std::uint64_t begin =
          std::uint64_t{allocation->memory_offset_high()} << 32 | allocation->memory_offset_low();
      const std::uint64_t end = std::min<std::uint64_t>(begin + tensor_bytes(*tensor), SIZE_MAX);
      used[allocation->memory_id()] = std::max(used[allocation->memory_id()], static_cast<std::size_t>(end));
    }
  }
  return used;
}

std::uint8_t* Blocks::allocate(std::size_t bytes) {
  constexpr std::size_t kAround = kAlignment + XNN_EXTRA_BYTES;
  constexpr std::size_t kLarge = std::size_t{16} << 10;
  if (bytes >= kLarge && bytes <= SIZE_MAX - kAround) {
    // Zeroed by the system, page by page as they are used: clearing 45 KiB here took a tenth of a small
    // program's load.
    Pages pages = Pages::allocate(bytes + kAround);
    if (pages.data() == nullptr) {
      return nullptr;
    }
    pages_.push_back(std::move(pages));
    return pages_.back().data();
  }
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
  std::vector<std::vector<std::size_t>> used;
  for (const pte::ExecutionPlan* plan : plans) {
    used.push_back(arenas_used(*plan));
  }
  for (std::size_t arena = kFirstShared; arena < arenas_of(*plans.Get(0)); ++arena) {
    const std::int64_t size = size_of_arena(*plans.Get(0), arena);
    const bool everywhere = std::all_of(plans.begin(), plans.end(), [&](const pte::ExecutionPlan* plan) {
      return arena < arenas_of(*plan) && size_of_arena(*plan, arena) == size;
    });
    if (everywhere && size > 0) {
      std::size_t& most = sizes_[arena];
      for (const std::vector<std::size_t>& one : used) {
        most = std::max(most, one[arena]);
      }
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
