// A .pte file's layout, checked before anything trusts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "program_generated.h"
#include "slipway/status.h"

namespace slipway {

// Where the parts of a .pte file are. Offsets and sizes are inside the file: check_layout has seen to it.
struct ProgramLayout {
  std::uint64_t program_size = 0;  // of the flatbuffer at the file's start
  std::uint64_t segment_base = 0;  // segments count their offsets from here
  std::uint64_t segment_size = 0;  // all segments with the padding between them
};

// Reads the header: identifier, and whether the file is as long as it says. kFile with sizes when it is not.
Result<ProgramLayout> check_layout(const std::uint8_t* data, std::size_t size, const std::string& path);

// The program in the file, every reference, index and extent in it checked. Points into `data`.
Result<const pte::Program*> check_program(const std::uint8_t* data, std::size_t size,
                                          const std::string& path);

// What is wrong inside a program whose flatbuffer is well-formed: an index out of its table, a tensor beyond
// its memory, a segment beyond the file. Empty when nothing is.
std::string find_fault(const pte::Program& program, const ProgramLayout& layout);

}  // namespace slipway
