// Everything a program can be put through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "slipway/engine.h"
#include "slipway/status.h"

namespace slipway {

// What came of it, as far as it went.
struct Trace {
  std::uint64_t digest = 0xcbf29ce484222325;  // of all outputs (FNV-1a)
  std::size_t executed = 0;                   // methods
};

// Describes the program, loads each of its methods and executes it on ones; the first failure ends it.
// Methods whose inputs, outputs or planned memory are too large are only loaded.
Status exercise(Engine& engine, const std::string& path, Trace* trace);

namespace fuzz {

// What memory is filled with before it is given out (guarded_memory.cpp): code that reads what nobody wrote
// answers otherwise with another.
void fill_memory_with(std::uint8_t byte);

}  // namespace fuzz
}  // namespace slipway
