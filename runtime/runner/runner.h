#pragma once

#include <string>
#include <vector>

namespace slipway {

// Parses `words` (without the program's name), does what they ask, prints, and returns the exit code.
int run_command(const std::vector<std::string>& words);

}  // namespace slipway
