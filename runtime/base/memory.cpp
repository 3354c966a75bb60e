#include "base/device_memory.h"

namespace slipway {
namespace {

std::string mebibytes(std::uint64_t bytes) {
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
  return std::to_string(bytes / kMebibyte) + " MiB";
}

}  // namespace

Status check_room(std::uint64_t bytes, const std::string& what) {
  if (bytes <= kAlwaysTried) {
    return {};
  }
  const std::optional<MemoryLeft> left = memory_left();
  if (!left || bytes <= left->bytes) {
    return {};
  }
  return {Code::kMemory,
          "There is no memory for " + what + ": it takes " + std::to_string(bytes) + " bytes (" +
              mebibytes(bytes) + "), " + left->limit + " leaves " + mebibytes(left->bytes) + ".",
          "end other programs, raise the limit, or use a smaller program or input"};
}

}  // namespace slipway
