#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "slipway/status.h"

namespace slipway {

// Checks a whole .ptd file, weights stored apart from their program: its header against the file's size, its
// flatbuffer, every index and extent in it. kFile when it is damaged, truncated or no such file.
Status check_data(const std::uint8_t* data, std::size_t size, const std::string& path);

// The same for the file of that name.
Status check_data_file(const std::string& path);

}  // namespace slipway
