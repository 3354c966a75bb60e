#pragma once

#include <string>
#include <vector>

#include "slipway/engine.h"

namespace slipway {

// The program: parses `words` (without the program's name), does what they ask, prints, and returns the exit
// code.
int run_command(const std::vector<std::string>& words);

}  // namespace slipway
