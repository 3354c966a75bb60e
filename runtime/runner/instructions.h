// The instructions that this process has executed on an emulated machine of Slipway:
// toolchains/emulation/instructions.c counts them.
#pragma once

#include <cstdint>
#include <vector>

namespace slipway {

class InstructionCounter {
 public:
  // Finds out whether anything counts here, and what asking costs.
  InstructionCounter();

  bool counts() const { return counts_; }

  // The beginning and the end of what is counted. end() returns the instructions between: of this process, in
  // user mode, with all its threads.
  void begin();
  std::uint64_t end();

 private:
  std::uint64_t begin_ = 0;
  std::uint64_t cost_ = 0;
  bool counts_ = false;
};

}  // namespace slipway
