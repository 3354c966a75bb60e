// Waiting for a process that tries something, and ending it when it takes too long.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <string>

namespace slipway::fuzz {

// Waits for the process's end; true when it had to be ended since it used `limit` seconds of CPU, or waited
// 30 times as long, without `at` changing (null: altogether).
bool watch(pid_t process, const std::atomic<std::size_t>* at, std::size_t limit, int* ended);

// What was written to a file, its beginning if it is long.
std::string words_of(int file);

}  // namespace slipway::fuzz
