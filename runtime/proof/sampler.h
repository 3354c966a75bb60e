#pragma once

#include <cstdint>
#include <map>

namespace proof {

// Notes where this process is, a few hundred times a second of processor time, from its making until Stop().
// One at a time.
class Sampler {
 public:
  // Whether this system can do it; if not, there are never samples.
  static bool Available();

  Sampler();
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Addresses as the program's symbol table has them, and how often each was seen.
  std::map<std::uintptr_t, unsigned> Stop();
};

}  // namespace proof
