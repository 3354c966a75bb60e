#include "profile.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "json_reader.h"

namespace slipway::onnx {
namespace {

constexpr char kSuffix[] = "_kernel_time";

Status no_profile(const std::string& why) {
  return {Code::kExecution, "ONNX Runtime's profile cannot be read: " + why + ".", "run without --profile"};
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

Result<std::vector<NodeEvent>> read_profile(const std::string& text) {
  JsonValue document;
  if (!parse_json(text, &document) || document.kind != JsonValue::Kind::kArray) {
    return no_profile("it is not a JSON array");
  }
  std::vector<NodeEvent> events;
  for (const JsonValue& event : document.items) {
    const std::string& name = event["name"].text;
    if (event["cat"].text != "Node" || !ends_with(name, kSuffix)) {
      continue;
    }
    const JsonValue& arguments = event["args"];
    events.push_back({name.substr(0, name.size() - (sizeof(kSuffix) - 1)), arguments["op_name"].text,
                      arguments["provider"].text, static_cast<std::uint64_t>(event["dur"].number)});
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
