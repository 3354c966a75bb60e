#pragma once

#include <cstdint>

namespace slipway {

// What describing a program may take, which may come from anywhere: memory by the file's size (of all its
// files), processor time in all. The limits are this process's own from here on, where its system has such;
// those that are lower already stay, and a further call may allow more. Without memory the answer is kMemory,
// without time kLimit.
inline constexpr unsigned kDescribeSeconds = 100;
std::uint64_t describe_bytes(std::uint64_t file_size);
void limit_describing(std::uint64_t bytes);

}  // namespace slipway
