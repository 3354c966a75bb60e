#include "json_reader.h"

#include <cstdlib>
#include <utility>

namespace slipway {
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
    if (take("\"")) {
      value->kind = JsonValue::Kind::kText;
      return string(&value->text);
    }
    if (take("null")) {
      return true;
    }
    for (const bool flag : {true, false}) {
      if (take(flag ? "true" : "false")) {
        value->kind = JsonValue::Kind::kBoolean;
        value->boolean = flag;
        return true;
      }
    }
    return number(value);
  }

  bool object(JsonValue* value, int depth) {
    value->kind = JsonValue::Kind::kObject;
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
    value->kind = JsonValue::Kind::kArray;
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

  bool number(JsonValue* value) {
    const std::size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
    const std::string digits(text_.substr(at_, end == std::string_view::npos ? end : end - at_));
    char* stop = nullptr;
    value->kind = JsonValue::Kind::kNumber;
    value->number = std::strtod(digits.c_str(), &stop);
    at_ += digits.size();
    return !digits.empty() && *stop == '\0';
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

const JsonValue& JsonValue::operator[](const std::string& name) const {
  static const JsonValue null;
  const auto found = members.find(name);
  return found == members.end() ? null : found->second;
}

bool parse_json(std::string_view text, JsonValue* value) {
  return JsonParser(text).document(value);
}

}  // namespace slipway
