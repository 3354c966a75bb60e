#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace slipway {

// A JSON value (RFC 8259). What is not there reads as null: value["a"]["b"].text is empty then.
struct JsonValue {
  enum class Kind { kNull, kBoolean, kNumber, kText, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  double number = 0;
  std::string text;
  std::vector<JsonValue> items;
  std::map<std::string, JsonValue> members;

  const JsonValue& operator[](const std::string& name) const;
};

// False when the text is no JSON document, or is nested deeper than 64 levels.
bool parse_json(std::string_view text, JsonValue* value);

}  // namespace slipway
