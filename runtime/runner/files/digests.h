// The digests of the files that were run, as the runner itself reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slipway {

struct FileDigest {
  std::string path;
  std::uint64_t size = 0;
  std::string sha256;
};

// SHA-256 of each file, from the memory that the system keeps of it for everybody who maps it. Given up as
// soon as the bytes so far say that all of them take longer than `limit_ms`: then there are none, nor are
// there any with a file that cannot be mapped.
std::vector<FileDigest> digest_files(const std::vector<std::string>& paths, double limit_ms);

// SHA-256 (FIPS 180-4) of bytes that come piece by piece.
class Sha256 {
 public:
  void add(const void* data, std::size_t size);
  // 64 lower-case hexadecimal digits; nothing may be added afterwards.
  std::string hex();

 private:
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> rest_ = {};  // the beginning of a block that is not whole yet
  std::uint64_t size_ = 0;
};

// The same of `size` bytes at once.
std::string sha256_hex(const void* data, std::size_t size);

}  // namespace slipway
