#pragma once

#include <algorithm>
#include <cstddef>
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
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& value(std::nullptr_t) { return raw("null"); }
  // Six decimals; null when not finite, which JSON cannot say.
  JsonWriter& value(double number);
  template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  JsonWriter& value(T number) {
    return raw(std::to_string(number));
  }
  template <typename T>
  JsonWriter& value(const std::vector<T>& items) {
    return list(items, [this](const T& item) { value(item); });
  }
  // An array of what `write` writes for each item.
  template <typename T, typename Write>
  JsonWriter& list(const std::vector<T>& items, Write write) {
    open('[');
    std::for_each(items.begin(), items.end(), write);
    return close(']');
  }
  // Types of ours say what they are in JSON: void write_json(JsonWriter&, const T&).
  template <typename T>
  auto value(const T& item) -> decltype(write_json(*this, item), *this) {
    write_json(*this, item);
    return *this;
  }
  // Items one after the other, which may be of different types.
  template <typename... Items>
  JsonWriter& array(const Items&... items) {
    open('[');
    (value(items), ...);
    return close(']');
  }
  // Members of the object that has begun: names and values in turn.
  template <typename T, typename... Rest>
  JsonWriter& members(std::string_view name, const T& item, const Rest&... rest) {
    key(name).value(item);
    if constexpr (sizeof...(rest) != 0) {
      members(rest...);
    }
    return *this;
  }
  // A whole object of such members.
  template <typename... Items>
  JsonWriter& object(const Items&... items) {
    return begin_object().members(items...).end_object();
  }
  // The same of pairs whose names are not known beforehand.
  template <typename Pairs>
  JsonWriter& object_of(const Pairs& pairs) {
    begin_object();
    for (const auto& [name, item] : pairs) {
      members(name, item);
    }
    return end_object();
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view token);

  std::string text_;
  Form form_;
  std::size_t depth_ = 0;
  bool comma_ = false;  // whether the next item is preceded by one
};

// The text between quotes, escaped. Bytes that are not UTF-8 become U+FFFD: the document always parses.
std::string json_escape(std::string_view text);

}  // namespace slipway
