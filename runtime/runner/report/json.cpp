#include "runner/report/json.h"

#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace slipway {
std::string json_escape(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\n\t\r";
  constexpr std::string_view kEscapes = "\"\\ntr";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    if (const std::size_t at = kEscaped.find(c); at != std::string_view::npos) {
      out += {'\\', kEscapes[at]};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

JsonWriter& JsonWriter::open(char bracket) {
  raw({&bracket, 1});
  comma_ = false;
  ++depth_;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  --depth_;
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view token) {
  text_.append(comma_ ? "," : "").append(token);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  const std::string line = form_ == Form::kLines ? '\n' + std::string(2 * depth_, ' ') : "";
  raw(line + '"' + json_escape(name) + "\":");
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  return raw('"' + json_escape(text) + '"');
}

JsonWriter& JsonWriter::value(bool flag) {
  return raw(flag ? "true" : "false");
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) {
    return raw("null");
  }
  char digits[352];  // the longest double has 309 digits before the point
  std::snprintf(digits, sizeof(digits), "%.6f", number);
  return raw(digits);
}

}  // namespace slipway
