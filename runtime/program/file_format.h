// What .pte and .ptd files have in common: little-endian headers, and two ways to be broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "slipway/status.h"

namespace slipway {

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

}  // namespace slipway
