#include "runner/tune/keyed_text.h"

#include <cstdio>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/platform.h"
#include "base/text.h"

namespace slipway {
namespace {

constexpr char kChoicesTitle[] = "slipway kernels 1";
constexpr std::size_t kMostText = std::size_t{4} << 20;
constexpr std::size_t kMostLines = 100000;
constexpr std::size_t kMostWords = 64;
constexpr std::size_t kMostName = 256;
constexpr std::size_t kDigits = 18;
constexpr char kSumWord[] = "sum ";
// A change within one tick of a file system's clock leaves the same time.
constexpr std::int64_t kSettled = std::int64_t{2} * 1000000000;

std::string hex_of(const Checksum& sum) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(sum.first),
                static_cast<unsigned long long>(sum.second));
  return text;
}

std::string hex_of(std::string_view text) {
  return hex_of(checksum_of(text.data(), text.size()));
}

std::string whole_sum(const MappedFile& file) {
  const std::string sum = hex_of(checksum_of(file.data(), file.size()));
  file.forget(file.data(), file.size());
  return sum;
}

// "file SIZE NUMBER MODIFIED CHANGED SUM". The number is 0 where the others prove nothing.
TextLine line_of(const MappedFile& file) {
  const FileIdentity& identity = file.identity();
  const bool settled =
      identity.seen - identity.changed > kSettled && identity.changed > 0 && identity.modified > 0;
  return {"file",
          std::to_string(file.size()),
          std::to_string(settled ? identity.number : 0),
          std::to_string(settled ? identity.modified : 0),
          std::to_string(settled ? identity.changed : 0),
          whole_sum(file)};
}

// The file is read only when something of it changed since.
bool is_same(const TextLine& line, const MappedFile& file) {
  const FileIdentity& identity = file.identity();
  if (line.size() != 6 || line[1] != std::to_string(file.size())) {
    return false;
  }
  const bool untouched = line[2] != "0" && line[2] == std::to_string(identity.number) &&
                         line[3] == std::to_string(identity.modified) &&
                         line[4] == std::to_string(identity.changed);
  return untouched || line[5] == whole_sum(file);
}

Status wrong(const std::string& why) {
  return {Code::kFile, why, ""};
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > kMostName) {
    return false;
  }
  for (const char c : text) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '.' || c == '/' || c == '-';
    if (!fine) {
      return false;
    }
  }
  return true;
}

// Whose it is, by the lines that say so; what is left in `lines` are the others.
Status check_owner(const TextOwner& owner, bool complete, std::vector<TextLine>* lines) {
  std::vector<TextLine> files;
  std::vector<TextLine> others;
  bool known = false;
  for (TextLine& line : *lines) {
    if (line[0] == "file") {
      files.push_back(line);
    } else if (line[0] == "processor") {
      if (line.size() != 2 || known) {
        return wrong("it is damaged: its processor");
      }
      if (line[1] != hex_of(owner.processor)) {
        return wrong("it was made for another processor");
      }
      known = true;
    } else {
      others.push_back(std::move(line));
    }
  }
  *lines = std::move(others);
  if (files.empty() && !known && !complete) {
    return {};
  }
  if (!known || files.size() != owner.files.size()) {
    return wrong("it was made for another program");
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Result<MappedFile> file = MappedFile::open(owner.files[i]);
    if (!file.ok() || !is_same(files[i], file.value())) {
      return wrong(i == 0 ? "it was made for another runner" : "it was made for another program");
    }
  }
  return {};
}

}  // namespace

bool parse_whole(std::string_view text, std::uint64_t* number) {
  if (text.empty() || text.size() > kDigits || (text.size() > 1 && text[0] == '0')) {
    return false;
  }
  *number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      return false;
    }
    *number = *number * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return true;
}

Result<std::vector<TextLine>> read_text(const std::string& path, const std::string& title,
                                        const TextOwner& owner, bool complete) {
  if (!exists(path)) {
    return wrong("there is none");
  }
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) {
    return wrong(file.status().message());
  }
  if (file.value().size() > kMostText) {
    return wrong("it is longer than such a file may be");
  }
  std::string_view text(reinterpret_cast<const char*>(file.value().data()), file.value().size());
  if (text.empty() || text.back() != '\n') {
    return wrong("it is damaged: its last line does not end");
  }
  for (const char c : text) {
    if (c != '\n' && (c < ' ' || c > '~')) {
      return wrong("it is damaged: it is not plain text");
    }
  }
  const std::size_t last = text.size() == 1 ? 0 : text.rfind('\n', text.size() - 2) + 1;
  const bool summed = text.substr(last, sizeof(kSumWord) - 1) == kSumWord;
  if (summed) {
    const std::string_view sum = text.substr(last + sizeof(kSumWord) - 1);
    if (sum.substr(0, sum.size() - 1) != hex_of(text.substr(0, last))) {
      return wrong("it is damaged: its checksum does not fit");
    }
    text = text.substr(0, last);
  } else if (complete) {
    return wrong("it is damaged: it has no checksum");
  }
  const std::vector<std::string_view> all = pieces(text, "\n");
  if (all.empty() || all.front() != title) {
    return wrong("it is of another kind or version");
  }
  if (all.size() > kMostLines) {
    return wrong("it has more lines than such a file may have");
  }
  std::vector<TextLine> lines;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const std::vector<std::string_view> words = pieces(all[i], " ");
    if (words.empty() || words.size() > kMostWords) {
      return wrong("line " + std::to_string(i + 1) + " cannot be read");
    }
    lines.emplace_back(words.begin(), words.end());
  }
  const Status owned = check_owner(owner, complete, &lines);
  return owned.ok() ? Result<std::vector<TextLine>>(std::move(lines)) : owned;
}

Status write_text(const std::string& path, const std::string& title, const TextOwner& owner,
                  const std::vector<TextLine>& lines) {
  std::vector<TextLine> all = {{title}, {"processor", hex_of(owner.processor)}};
  for (const std::string& name : owner.files) {
    const Result<MappedFile> file = MappedFile::open(name);
    SLIPWAY_RETURN_IF_ERROR(file);
    all.push_back(line_of(file.value()));
  }
  all.insert(all.end(), lines.begin(), lines.end());
  std::string text;
  for (const TextLine& line : all) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      text += (i == 0 ? "" : " ") + line[i];
    }
    text += "\n";
  }
  text += kSumWord + hex_of(text) + "\n";
  return write_file(path, text.data(), text.size());
}

Result<KernelChoices> read_choices(const std::string& path, const TextOwner& owner, bool complete) {
  const Result<std::vector<TextLine>> lines = read_text(path, kChoicesTitle, owner, complete);
  SLIPWAY_RETURN_IF_ERROR(lines);
  KernelChoices found;
  std::set<std::string> named;
  for (const TextLine& line : lines.value()) {
    std::uint64_t numbers[2] = {};
    if (line[0] == "threads" && line.size() == 2 && found.threads == 0 && parse_whole(line[1], numbers) &&
        numbers[0] >= 1 && numbers[0] <= kMostThreads) {
      found.threads = static_cast<unsigned>(numbers[0]);
    } else if (line[0] == "time" && line.size() == 3 && found.own_ns == 0 && parse_whole(line[1], numbers) &&
               parse_whole(line[2], numbers + 1)) {
      found.own_ns = numbers[0];
      found.tuned_ns = numbers[1];
    } else if (line[0] == "layer" && (line.size() == 3 || line.size() == 6) && is_name(line[1]) &&
               is_name(line[2]) &&
               (line.size() == 3 ||
                (is_name(line[3]) && parse_whole(line[4], numbers) && parse_whole(line[5], numbers + 1)))) {
      if (!named.insert(line[1]).second) {
        return wrong("it names layer " + line[1] + " twice");
      }
      found.layers.push_back({line[1], line[2], line.size() == 6 ? line[3] : "", numbers[0], numbers[1]});
    } else {
      std::string text;
      for (const std::string& word : line) {
        text += (text.empty() ? "" : " ") + word;
      }
      return wrong("it has the unreadable line '" + text.substr(0, 80) + "'");
    }
  }
  return found;
}

Status write_choices(const std::string& path, const TextOwner& owner, const KernelChoices& choices) {
  std::vector<TextLine> lines;
  if (choices.threads != 0) {
    lines.push_back({"threads", std::to_string(choices.threads)});
  }
  if (choices.own_ns != 0) {
    lines.push_back({"time", std::to_string(choices.own_ns), std::to_string(choices.tuned_ns)});
  }
  for (const ChosenLayer& layer : choices.layers) {
    lines.push_back({"layer", layer.layer, layer.choice});
    if (!layer.own.empty()) {
      lines.back().insert(lines.back().end(),
                          {layer.own, std::to_string(layer.own_ns), std::to_string(layer.tuned_ns)});
    }
  }
  return write_text(path, kChoicesTitle, owner, lines);
}

}  // namespace slipway
