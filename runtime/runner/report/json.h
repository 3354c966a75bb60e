#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace slipway {

// Writes one JSON document (RFC 8259) from front to back. Commas and escapes are its business; that every
// begin has its end, and every member its key, is the caller's.
class JsonWriter {
 public:
  // kLines: each member of an object on a line of its own, for people.
  enum class Form { kCompact, kLines };

  explicit JsonWriter(Form form = Form::kCompact) : form_(form) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& null() { return raw("null"); }
  // Six decimals; null when not finite, which JSON cannot say.
  JsonWriter& value(double number);
  template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  JsonWriter& value(T number) {
    return raw(std::to_string(number));
  }
  template <typename T>
  JsonWriter& value(const std::vector<T>& items) {
    begin_array();
    for (const T& item : items) {
      value(item);
    }
    return end_array();
  }
  template <typename T>
  JsonWriter& member(std::string_view name, const T& item) {
    key(name);
    return value(item);
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view token);
  void separate();

  std::string text_;
  Form form_;
  std::size_t depth_ = 0;
  bool comma_ = false;  // whether the next item is preceded by one
};

// The text between quotes, escaped. Bytes that are not UTF-8 become U+FFFD, so that the document always
// parses.
std::string json_escape(std::string_view text);

}  // namespace slipway
