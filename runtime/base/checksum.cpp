#include "base/checksum.h"

#include <cstring>

namespace slipway {
namespace {

constexpr std::size_t kLanes = 4;  // that do not wait for each other
constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 by the golden ratio
constexpr std::uint64_t kOther = 0xD6E8FEB86659FD93;

std::uint64_t turned(std::uint64_t value, unsigned bits) {
  return (value << bits) | (value >> (64 - bits));
}

// Each step can be undone, so that two values never become one.
std::uint64_t stirred(std::uint64_t lane, std::uint64_t word) {
  return turned(lane + word * kOther, 31) * kOdd;
}

std::uint64_t scattered(std::uint64_t value) {
  value = (value ^ (value >> 32)) * kOther;
  value = (value ^ (value >> 29)) * kOdd;
  return value ^ (value >> 32);
}

}  // namespace

Checksum checksum_of(const void* data, std::size_t size) {
  const auto* next = static_cast<const std::uint8_t*>(data);
  std::uint64_t lanes[kLanes] = {1, 2, 3, 4};
  std::uint64_t words[kLanes];
  std::size_t left = size;
  for (; left >= sizeof(words); left -= sizeof(words), next += sizeof(words)) {
    std::memcpy(words, next, sizeof(words));
    for (std::size_t i = 0; i < kLanes; ++i) {
      lanes[i] = stirred(lanes[i], words[i]);
    }
  }
  if (left > 0) {
    std::memset(words, 0, sizeof(words));
    std::memcpy(words, next, left);
    for (std::size_t i = 0; i * kWord < left; ++i) {
      lanes[i] = stirred(lanes[i], words[i]);
    }
  }
  Checksum sum = {size, ~std::uint64_t{size}};
  for (std::size_t i = 0; i < kLanes; ++i) {
    sum.first = scattered(sum.first ^ lanes[i]);
    sum.second = scattered(sum.second ^ turned(lanes[kLanes - 1 - i], 17));
  }
  return sum;
}

}  // namespace slipway
