#include "profile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

namespace slipway::onnx {
namespace {

constexpr int kDeepestJson = 64;

void append_utf8(unsigned long code, std::string* text) {
  const auto add = [&](unsigned long byte) { text->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else {  // surrogates are kept one by one: names of nodes are compared, not shown
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  bool document(JsonValue* value) {
    if (!parse(value, 0)) {
      return false;
    }
    blanks();
    return at_ == text_.size();
  }

 private:
  void blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool take(std::string_view wanted) {
    blanks();
    if (text_.substr(at_, wanted.size()) != wanted) {
      return false;
    }
    at_ += wanted.size();
    return true;
  }

  bool parse(JsonValue* value, int depth) {
    if (depth > kDeepestJson) {
      return false;
    }
    if (take("{")) {
      return object(value, depth);
    }
    if (take("[")) {
      return array(value, depth);
    }
    return take("\"") ? string(&value->text) : bare(&value->text);
  }

  bool object(JsonValue* value, int depth) {
    if (take("}")) {
      return true;
    }
    do {
      std::string name;
      JsonValue member;
      if (!take("\"") || !string(&name) || !take(":") || !parse(&member, depth + 1)) {
        return false;
      }
      value->members[std::move(name)] = std::move(member);
    } while (take(","));
    return take("}");
  }

  bool array(JsonValue* value, int depth) {
    if (take("]")) {
      return true;
    }
    do {
      value->items.emplace_back();
      if (!parse(&value->items.back(), depth + 1)) {
        return false;
      }
    } while (take(","));
    return take("]");
  }

  bool string(std::string* text) {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') {
        return true;
      }
      if (c != '\\') {
        text->push_back(c);
      } else if (!escape(text)) {
        return false;
      }
    }
    return false;
  }

  bool escape(std::string* text) {
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) {
      return false;
    }
    const char c = text_[at_++];
    if (c == 'u') {
      const std::string digits(text_.substr(at_, 4));
      if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        return false;
      }
      at_ += 4;
      append_utf8(std::strtoul(digits.c_str(), nullptr, 16), text);
      return true;
    }
    const std::size_t index = kNames.find(c);
    if (index == std::string_view::npos) {
      return false;
    }
    text->push_back(kValues[index]);
    return true;
  }

  // A number, true, false or null, as it is written.
  bool bare(std::string* text) {
    const std::size_t end = std::min(text_.find_first_of(" \n\r\t,:{}[]\"", at_), text_.size());
    *text = text_.substr(at_, end - at_);
    at_ = end;
    return !text->empty();
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

constexpr char kSuffix[] = "_kernel_time";

Status no_profile(const std::string& why) {
  return {Code::kExecution, "ONNX Runtime's profile cannot be read: " + why + ".", "run without --profile"};
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

const JsonValue& JsonValue::operator[](const std::string& name) const {
  static const JsonValue null;
  const auto found = members.find(name);
  return found == members.end() ? null : found->second;
}

bool parse_json(std::string_view text, JsonValue* value) {
  return JsonParser(text).document(value);
}

Result<std::vector<NodeEvent>> read_profile(const std::string& text) {
  JsonValue document;
  if (!parse_json(text, &document) || document.items.empty()) {
    return no_profile("it is not a JSON array of events");
  }
  std::vector<NodeEvent> events;
  for (const JsonValue& event : document.items) {
    const std::string& name = event["name"].text;
    if (event["cat"].text != "Node" || !ends_with(name, kSuffix)) {
      continue;
    }
    const JsonValue& arguments = event["args"];
    events.push_back({name.substr(0, name.size() - (sizeof(kSuffix) - 1)), arguments["op_name"].text,
                      arguments["provider"].text, std::strtoull(event["dur"].text.c_str(), nullptr, 10)});
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
