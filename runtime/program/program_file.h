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

// Flatbuffers count in 32 bits on every system.
template <typename Vector, typename Index>
auto item_of(const Vector* vector, Index index) {
  return vector->Get(static_cast<flatbuffers::uoffset_t>(index));
}

// What .pte and .ptd files have in common: little-endian headers, and two ways to be broken.

inline constexpr char kCopyAgain[] = "copy the file again, or export the model again";

inline std::uint64_t little_endian(const std::uint8_t* bytes, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = count; i-- > 0;) {
    value = value << 8 | bytes[i];
  }
  return value;
}

inline Status truncated(const std::string& path, std::uint64_t found, std::uint64_t promised) {
  return {Code::kFile,
          path + " is truncated: " + std::to_string(found) + " bytes found, " + std::to_string(promised) +
              " promised by its header.",
          kCopyAgain,
          {path}};
}

inline Status damaged(const std::string& path, const std::string& what) {
  return {Code::kFile, path + " is damaged: " + what + ".", kCopyAgain, {path}};
}

// Checks a whole .ptd file, weights stored apart from their program: its header against the file's size, its
// flatbuffer, every index and extent in it. kFile when it is damaged, truncated or no such file.
Status check_data(const std::uint8_t* data, std::size_t size, const std::string& path);

}  // namespace slipway
