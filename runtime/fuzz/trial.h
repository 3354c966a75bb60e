// Damaged programs tried one after another in a process of their own, which may crash, hang or eat memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace slipway::fuzz {

enum class Outcome : std::uint8_t {
  kNone,
  kRan,       // to the end, twice
  kLoaded,    // its inputs are too large to be made
  kRefused,   // with words
  kWordless,  // refused without them: a finding, as the rest
  kDiffers,   // two runs, two answers: somebody read what nobody wrote
  kCrashed,
  kHung,
  kLeaked,
};

const char* name_of(Outcome outcome);
bool is_finding(Outcome outcome);

struct Trial {
  Outcome outcome = Outcome::kNone;
  int code = 0;        // the runner's exit code of a refusal
  std::string report;  // what was printed last, of findings
};

struct PatchedRange {
  std::size_t offset;
  std::size_t size;
};

// Changes the file's copy for trial number i, and says where.
using Change = std::function<PatchedRange(std::size_t i, std::uint8_t* data)>;
// Called for each trial, in their order.
using OnTrial = std::function<void(std::size_t i, const Trial& trial)>;

// Tries `count` files, each of which differs from `file` by one change; one may take so many seconds of CPU.
// False when there are no processes to be had.
bool try_all(const std::vector<std::uint8_t>& file, std::size_t count, const Change& change,
             std::size_t cpu_seconds, const OnTrial& on_trial);

// From now on a signal that ends the process prints itself and the calls that led there to standard error.
// Under sanitizers they do that themselves.
void keep_last_words();

// What memory is filled with before it is given out: code that reads what nobody wrote answers otherwise with
// another.
void fill_memory_with(std::uint8_t byte);

}  // namespace slipway::fuzz
