#include "profile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
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

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 3; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > 3 ? text + ", ..." : text;
}

// One line for each kind of thing that was kept from the provider.
std::vector<std::string> kept_away(const Guard& guard) {
  std::map<std::string, std::vector<std::string>> nodes;
  for (const Fault& fault : guard.faults) {
    nodes[fault.why].push_back(fault.op + " " + fault.node);
  }
  std::vector<std::string> lines;
  for (const auto& [why, names] : nodes) {
    lines.push_back(list(names) + (guard.whole ? ", and so the whole model, was" : " was") +
                    " kept from the XNNPACK provider: " + why);
  }
  return lines;
}

// Whether the XNNPACK provider has the operator for inputs of fixed sizes; ONNX Runtime puts something before
// or behind its name when it fuses or quantizes it.
bool wants_fixed_sizes(const std::string& op) {
  static const char* const kOperators[] = {"Conv", "MaxPool", "AveragePool", "Resize", "Softmax", "Gemm"};
  return std::any_of(std::begin(kOperators), std::end(kOperators), [&](const char* name) {
    return op.find(name) != std::string::npos && op.find("Global") == std::string::npos;
  });
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

Placement placement_of(const std::vector<NodeEvent>& events, const Pools& pools) {
  Placement placement;
  std::set<std::pair<std::string, std::string>> seen;
  std::size_t open = 0;
  std::uint64_t fallen = 0;
  std::uint64_t all = 0;
  for (const NodeEvent& event : events) {
    const bool fell = pools.xnnpack && event.provider != kXnnpack;
    all += event.microseconds;
    fallen += fell ? event.microseconds : 0;
    if (seen.insert({event.name, event.op}).second) {  // a loop's body comes again
      placement.nodes.push_back({event.name, event.op, event.provider});
      open += fell && pools.open && wants_fixed_sizes(event.op) ? 1 : 0;
    }
  }
  if (pools.xnnpack) {
    placement.hints = kept_away(pools.guard);
  }
  if (open > 0) {
    placement.hints.push_back(std::to_string(open) + (open == 1 ? " node" : " nodes") +
                              " of operators that XNNPACK has in fixed sizes ran on " + kCpu +
                              ", and the model leaves sizes of its inputs open: --input_shapes " +
                              pools.shapes + " fixes them for the session");
  }
  if (!pools.fixed.empty()) {
    placement.hints.push_back("the model leaves sizes of " + list(pools.fixed) +
                              " open: they were fixed for this session by --input_shapes " + pools.shapes);
  }
  if (fallen * 2 > all && pools.ort_threads < pools.cores) {
    placement.hints.push_back(
        std::to_string(fallen * 100 / all) + "% of the time was spent on " + kCpu + ", whose pool has " +
        std::to_string(pools.ort_threads) + (pools.ort_threads == 1 ? " thread" : " threads") +
        ": try --provider cpu, or pte_runner --ort_threads " + std::to_string(pools.cores));
  }
  return placement;
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
