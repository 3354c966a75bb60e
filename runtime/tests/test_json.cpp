#include "check.h"
#include "runner/report/json.h"

namespace {

using slipway::json_escape;
using slipway::JsonWriter;

TEST(json_escapes) {
  CHECK_EQUAL(json_escape("plain"), "plain");
  CHECK_EQUAL(json_escape("a\"b\\c"), "a\\\"b\\\\c");
  CHECK_EQUAL(json_escape("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  CHECK_EQUAL(json_escape(std::string("\0\x1f\x7f", 3)), "\\u0000\\u001f\\u007f");
  CHECK_EQUAL(json_escape("größe \xE2\x82\xAC \xF0\x9F\x98\x80"), "größe \xE2\x82\xAC \xF0\x9F\x98\x80");
}

TEST(json_replaces_what_is_not_utf8) {
  const std::string replacement = "\xEF\xBF\xBD";
  CHECK_EQUAL(json_escape("a\xFFz"), "a" + replacement + "z");
  CHECK_EQUAL(json_escape("\xC3"), replacement);
  CHECK_EQUAL(json_escape("\xC0\xAF"), replacement + replacement);                    // overlong
  CHECK_EQUAL(json_escape("\xED\xA0\x80"), replacement + replacement + replacement);  // a surrogate
}

TEST(json_numbers) {
  JsonWriter json;
  json.begin_array().value(0.0).value(1.5).value(-0.000001).value(NAN);
  json.value(std::numeric_limits<double>::infinity())
      .value(std::numeric_limits<std::uint64_t>::max())
      .end_array();
  CHECK_EQUAL(json.text(), "[0.000000,1.500000,-0.000001,null,null,18446744073709551615]");
  JsonWriter large;
  large.value(std::numeric_limits<double>::max());
  CHECK_EQUAL(large.text().size(), std::size_t{309 + 7});
}

}  // namespace
