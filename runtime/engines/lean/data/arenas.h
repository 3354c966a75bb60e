// Memory that a program plans for: a method's own, and what its methods have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/platform.h"
#include "program_file.h"

namespace slipway::lean {

// The bytes of each planned memory up to the end of the last tensor in it.
std::vector<std::size_t> arenas_used(const pte::ExecutionPlan& plan);

// Zeroed memory that stays where it is, with bytes behind it that XNNPACK may read.
class Blocks {
 public:
  // nullptr when there is none left.
  std::uint8_t* allocate(std::size_t bytes);

 private:
  std::vector<std::unique_ptr<std::uint8_t[]>> memory_;
  std::vector<Pages> pages_;  // of what is large
};

// The arenas through which methods share state: what one leaves in a buffer, the next one finds. Upstream's
// planner (`share_mutable_buffers`) gives these buffers an arena of their own, behind the one of intermediate
// values, and lists it with the same size in every method, also in those that use none of them. State in the
// first arena is each method's own.
class SharedArenas {
 public:
  explicit SharedArenas(const pte::Program& program);

  bool has(std::size_t arena) const { return sizes_.count(arena) != 0; }
  // The same for every method that asks; nullptr when there is none left.
  std::uint8_t* memory(std::size_t arena);

 private:
  std::map<std::size_t, std::size_t> sizes_;  // bytes, by the arena's number
  std::map<std::size_t, std::uint8_t*> made_;
  Blocks blocks_;
};

}  // namespace slipway::lean
