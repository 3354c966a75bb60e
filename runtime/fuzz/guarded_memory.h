// Memory between pages that nobody may touch: XNNPACK's microkernels, which no sanitizer sees, end the
// process when they leave it. Linked into a program, it replaces malloc there.
#pragma once

#include <cstdint>

namespace slipway::fuzz {

// What memory is filled with before it is given out: code that reads what nobody wrote answers otherwise with
// another.
void fill_memory_with(std::uint8_t byte);

}  // namespace slipway::fuzz
