#include "text/saved_text.h"

#include <cstring>

namespace slipway {
namespace {

// The head: these words, four of each part (its bytes, those that are stored, their checksum), and the
// checksum of all that.
constexpr std::uint64_t kMagic = 0x3154584554504C53;  // "SLPTEXT1"
enum Word : std::size_t { kFormat, kOwner, kPosition = kOwner + 2, kParts, kTable };
constexpr std::size_t kPartWords = 4;

std::size_t without_zeros(const std::uint8_t* data, std::size_t size) {
  std::uint64_t word = 0;
  while (size >= sizeof word) {
    std::memcpy(&word, data + size - sizeof word, sizeof word);
    if (word != 0) {
      break;
    }
    size -= sizeof word;
  }
  while (size > 0 && size < sizeof word && data[size - 1] == 0) {
    --size;
  }
  return size;
}

Status damaged(const std::string& name) {
  return {Code::kFile,
          name + " is damaged: its checksums do not fit.",
          "let the model read the text again, and save it again",
          {name}};
}

}  // namespace

std::vector<FilePart> save_text(const TextSession& session, const StateMemory& memory, const Checksum& owner,
                                std::vector<std::uint64_t>* head) {
  const std::vector<float>& scores = session.scores();
  std::vector<FilePart> parts(1);
  *head = {kMagic, owner.first, owner.second, static_cast<std::uint64_t>(session.position()),
           memory.size() + 1};
  const auto add = [&](const void* data, std::size_t size, std::size_t stored) {
    const Checksum sum = checksum_of(data, stored);
    head->insert(head->end(), {size, stored, sum.first, sum.second});
    parts.push_back({data, stored});
  };
  for (const auto& [data, size] : memory) {
    add(data, size, without_zeros(data, size));
  }
  add(scores.data(), scores.size() * sizeof(float), scores.size() * sizeof(float));
  const Checksum sum = checksum_of(head->data(), head->size() * sizeof(std::uint64_t));
  head->insert(head->end(), {sum.first, sum.second});
  parts.front() = {head->data(), head->size() * sizeof(std::uint64_t)};
  return parts;
}

Status restore_text(const std::uint8_t* data, std::size_t size, const std::string& name,
                    const Checksum& owner, const StateMemory& memory, TextSession* session) {
  std::vector<std::uint64_t> head(kTable);
  if (size >= kTable * sizeof(std::uint64_t)) {
    std::memcpy(head.data(), data, kTable * sizeof(std::uint64_t));
  }
  if (head[kFormat] != kMagic) {
    return {Code::kFile, name + " is no saved text.", "give what a session saved", {name}};
  }
  const std::size_t most = size / sizeof(std::uint64_t) / kPartWords;
  const std::size_t words =
      head[kParts] <= most ? kTable + kPartWords * static_cast<std::size_t>(head[kParts]) + 2 : SIZE_MAX;
  if (words > size / sizeof(std::uint64_t)) {
    return damaged(name);
  }
  head.resize(words);
  std::memcpy(head.data(), data, words * sizeof(std::uint64_t));
  if (checksum_of(head.data(), (words - 2) * sizeof(std::uint64_t)) !=
      Checksum{head[words - 2], head[words - 1]}) {
    return damaged(name);
  }
  if (Checksum{head[kOwner], head[kOwner + 1]} != owner) {
    return {Code::kInput,
            name + " is of another program or method.",
            "restore it with the program that saved it, weights included",
            {name}};
  }
  const TextModel& model = session->model();
  const std::uint64_t position = head[kPosition];
  const std::uint64_t longest = model.context != 0 ? static_cast<std::uint64_t>(model.context) : INT32_MAX;
  const auto vocabulary = static_cast<std::size_t>(model.vocabulary);
  if (head[kParts] != memory.size() + 1 || position > longest) {
    return damaged(name);
  }
  std::vector<const std::uint8_t*> stored;
  const std::uint8_t* next = data + words * sizeof(std::uint64_t);
  for (std::size_t i = 0; i <= memory.size(); ++i) {
    const std::uint64_t* part = head.data() + kTable + kPartWords * i;
    const bool fits = i < memory.size()
                          ? part[0] == memory[i].second && part[1] <= part[0]
                          : (part[0] == 0 || part[0] == vocabulary * sizeof(float)) && part[1] == part[0];
    if (!fits || part[1] > static_cast<std::size_t>(data + size - next) ||
        checksum_of(next, static_cast<std::size_t>(part[1])) != Checksum{part[2], part[3]}) {
      return damaged(name);
    }
    stored.push_back(next);
    next += static_cast<std::size_t>(part[1]);
  }
  if (next != data + size) {
    return damaged(name);
  }
  std::vector<float> scores(static_cast<std::size_t>(head[words - 2 - kPartWords]) / sizeof(float));
  if (!scores.empty()) {
    std::memcpy(scores.data(), stored.back(), scores.size() * sizeof(float));
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto [place, bytes] = memory[i];
    const auto kept = static_cast<std::size_t>(head[kTable + kPartWords * i + 1]);
    std::memcpy(place, stored[i], kept);
    // What is zero already stays untouched: pages that no text has reached take no memory.
    std::memset(place + kept, 0, without_zeros(place + kept, bytes - kept));
  }
  session->go_on(static_cast<std::int64_t>(position), std::move(scores));
  return {};
}

}  // namespace slipway
