// Small files of text that belong to one program, one build of the runner and one kind of processor. Nothing
// in them is believed: docs/compare.md has the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slipway/status.h"

namespace slipway {

// Whom such a file belongs to.
struct TextOwner {
  std::string processor;           // the engine's word for what decides between kernels
  std::vector<std::string> files;  // paths: this program's own, the program that it runs, that one's weights
};

using TextLine = std::vector<std::string>;  // the words of a line

// The lines between the first, which is `title`, and the last. kFile with the reason when the file is not
// there, is damaged, or is another owner's. `complete`: it must say whose it is and have its checksum, as
// files that write_text made; files that people write may leave both out.
Result<std::vector<TextLine>> read_text(const std::string& path, const std::string& title,
                                        const TextOwner& owner, bool complete);
// Writes it, whole or not at all. Words are without blanks.
Status write_text(const std::string& path, const std::string& title, const TextOwner& owner,
                  const std::vector<TextLine>& lines);

// A whole number of at most 18 digits; nothing else.
bool parse_whole(std::string_view text, std::uint64_t* number);

// The kernels of some layers: what --kernel_choices and --tuned name.
struct ChosenLayer {
  std::string layer;
  std::string choice;
  std::string own;           // what the engine chooses by itself; empty: unknown
  std::uint64_t own_ns = 0;  // of one execution
  std::uint64_t tuned_ns = 0;
};
struct KernelChoices {
  unsigned threads = 0;      // with which they were measured to be best; 0: nothing is said
  std::uint64_t own_ns = 0;  // median of an execution without and with them; 0: nothing is said
  std::uint64_t tuned_ns = 0;
  std::vector<ChosenLayer> layers;
};

Result<KernelChoices> read_choices(const std::string& path, const TextOwner& owner, bool complete);
Status write_choices(const std::string& path, const TextOwner& owner, const KernelChoices& choices);

}  // namespace slipway
