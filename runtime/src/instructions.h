// The instructions that an emulated machine of Slipway has executed: toolchains/emulation/instructions.c
// counts them.
#pragma once

#include <cstdint>
#include <vector>

namespace slipway {

class InstructionCounter {
 public:
  // Finds out whether anything counts here, and what asking costs.
  InstructionCounter();

  bool counts() const { return counts_; }

  // Waits until nothing else runs on the machine: the shell that started this program and its timers would be
  // in the count. At once where nothing counts, and as soon as all calls together have waited for ten
  // seconds.
  void settle();

  // The beginning and the end of what is counted. end() returns the instructions between, of user mode, on
  // all processors of the machine.
  void begin();
  std::uint64_t end();

 private:
  std::uint64_t begin_ = 0;
  std::uint64_t cost_ = 0;
  int sleeps_ = 0;
  bool counts_ = false;
};

}  // namespace slipway
