#include <string_view>

#include "base/text.h"
#include "check.h"

namespace {

using slipway::pieces;
using slipway::printable;

TEST(printable_keeps_text) {
  const std::string text = "a\tb\nc größe \xE2\x82\xAC";
  CHECK_EQUAL(printable(text), text);
  CHECK_EQUAL(printable(""), "");
}

TEST(printable_disarms_control_characters) {
  const std::string replacement = "\xEF\xBF\xBD";
  CHECK_EQUAL(printable("\x1B[31m"), replacement + "[31m");
  CHECK_EQUAL(printable("\x7F\r"), replacement + replacement);
  CHECK_EQUAL(printable("\xC2\x9B"), replacement);  // the one-character form of escape and bracket
  CHECK_EQUAL(printable("a\xFFz"), "a" + replacement + "z");
}

TEST(pieces_are_what_stands_between_separators) {
  const std::vector<std::string_view> words = pieces("  fp asimd\tfphp ", " \t");
  CHECK(words == std::vector<std::string_view>({"fp", "asimd", "fphp"}));
  CHECK(pieces("one", "\n") == std::vector<std::string_view>({"one"}));
  CHECK(pieces("", " ").empty());
  CHECK(pieces(" \n", " \n").empty());
}

}  // namespace
