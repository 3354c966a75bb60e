#include "profile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace slipway::onnx {
namespace {

constexpr char kSuffix[] = "_kernel_time";

Status no_profile(const std::string& why) {
  return {Code::kExecution, "ONNX Runtime's profile cannot be read: " + why + ".", "run without --profile"};
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// What stands behind `key`, up to the quote that ends it.
std::string text_behind(std::string_view line, std::string_view key) {
  std::string found;
  const std::size_t begin = line.find(key);
  std::size_t at = begin == std::string_view::npos ? line.size() : begin + key.size();
  for (; at < line.size() && line[at] != '"'; ++at) {
    at += line[at] == '\\' && at + 1 < line.size() ? 1 : 0;
    found += line[at];
  }
  return found;
}

}  // namespace

Result<std::vector<NodeEvent>> read_profile(const std::string& text) {
  const std::vector<std::string_view> lines = pieces(text, "\r\n");
  if (lines.size() < 3 || lines.front() != "[" || lines.back() != "]") {
    return no_profile("it is not a JSON array of events");
  }
  std::vector<NodeEvent> events;
  for (const std::string_view line : lines) {
    const std::string name = text_behind(line, R"("name" :")");
    if (text_behind(line, R"({"cat" : ")") != "Node" || !ends_with(name, kSuffix)) {
      continue;
    }
    events.push_back({name.substr(0, name.size() - (sizeof(kSuffix) - 1)),
                      text_behind(line, R"("op_name" : ")"), text_behind(line, R"("provider" : ")"),
                      std::strtoull(text_behind(line, R"("dur" :)").c_str(), nullptr, 10)});
  }
  return events;
}

std::vector<ProfileRow> by_operator(const std::vector<NodeEvent>& events, std::size_t timed,
                                    std::size_t executions) {
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, std::size_t> left;
  for (const NodeEvent& event : events) {
    ++left[{event.name, event.op, event.provider}];
  }
  // The profile does not separate executions, but each runs a node equally often.
  for (auto& [key, count] : left) {
    count -= executions == 0 ? 0 : count / executions * std::min(timed, executions);
  }
  std::map<Key, ProfileRow> rows;
  for (const NodeEvent& event : events) {
    std::size_t& skipped = left[{event.name, event.op, event.provider}];
    if (skipped != 0) {
      --skipped;
      continue;
    }
    ProfileRow& row = rows[{event.name, event.op, event.provider}];
    row.name = event.name;
    row.op = event.op;
    row.provider = event.provider;
    ++row.count;
    row.times_ms.push_back(static_cast<double>(event.microseconds) / 1000.0);
    row.total_ms += row.times_ms.back();
  }
  std::vector<ProfileRow> sorted;
  for (auto& [key, row] : rows) {
    sorted.push_back(std::move(row));
  }
  std::sort(sorted.begin(), sorted.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return std::tie(b.total_ms, a.name, a.op) < std::tie(a.total_ms, b.name, b.op);
  });
  return sorted;
}

Result<std::string> read_file(int descriptor) {
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  for (off_t offset = 0;;) {
    const ssize_t got = ::pread(descriptor, block.data(), block.size(), offset);
    if (got < 0) {
      return no_profile("its file cannot be read");
    }
    if (got == 0) {
      return text;
    }
    text.append(block.data(), static_cast<std::size_t>(got));
    offset += got;
  }
}

}  // namespace slipway::onnx
