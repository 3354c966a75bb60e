#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace slipway {

// SHA-256 (FIPS 180-4) of `size` bytes, as 64 lower-case hexadecimal digits.
std::string sha256_hex(const void* data, std::size_t size);

}  // namespace slipway
