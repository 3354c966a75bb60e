#include "runner/instructions.h"

#include <algorithm>

namespace slipway {
namespace {

// The count so far; 0 where nothing counts. The instruction changes nothing on any processor, and no compiler
// writes it; a machine that counts puts the count into its register. Not inlined: each call costs the same.
#if defined(__aarch64__)
[[gnu::noinline]] std::uint64_t executed() {
  register std::uint64_t count __asm__("x0") = 0;
  __asm__ volatile(".inst 0xaa1f9400" : "+r"(count) : : "memory");  // orr x0, x0, xzr, lsl #37
  return count;
}
#elif defined(__arm__) && !defined(__thumb__)
[[gnu::noinline]] std::uint64_t executed() {
  register std::uint32_t count __asm__("r0") = 0;
  __asm__ volatile(".inst 0xe3800700" : "+r"(count) : : "memory");  // orr r0, r0, #0, ror #14
  return count;
}
#else
std::uint64_t executed() {
  return 0;
}
#endif

// A count of 32 bits begins again at 0.
std::uint64_t between(std::uint64_t begin, std::uint64_t end) {
  return sizeof(void*) == 4 ? static_cast<std::uint32_t>(end - begin) : end - begin;
}

}  // namespace

InstructionCounter::InstructionCounter() {
  std::vector<std::uint64_t> costs;
  for (int i = 0; i < 9; ++i) {
    begin();
    costs.push_back(end());
  }
  cost_ = *std::min_element(costs.begin(), costs.end());
  counts_ = cost_ != 0;
}

void InstructionCounter::begin() {
  begin_ = executed();
}

std::uint64_t InstructionCounter::end() {
  const std::uint64_t all = between(begin_, executed());
  return all - std::min(all, cost_);
}

}  // namespace slipway
