#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace slipway {

// Length of the well-formed UTF-8 sequence at the start of a text that is not empty; 0 when there is none.
std::size_t utf8_length(std::string_view text);

// The text as a terminal may show it: what is not UTF-8 and every control character, newline and tab
// excepted, becomes U+FFFD. For names out of files that nobody vouches for.
std::string printable(std::string_view text);

// What stands between the `separators`, without empty pieces: a line's words, a file's lines. Views of it.
std::vector<std::string_view> pieces(std::string_view text, std::string_view separators);

// Without these characters at either end.
std::string trimmed(std::string_view text, std::string_view characters);

// "a, b, c"
std::string joined(const std::vector<std::string>& words, const char* separator = ", ");

#ifdef _WIN32
// Between our UTF-8 and Windows' UTF-16. What is no UTF-8 becomes a replacement character.
std::wstring to_wide(const std::string& text);
std::string to_utf8(const wchar_t* text);

// What the system says of one of its error numbers, without the full stop.
std::string system_message(unsigned long error);
#endif

}  // namespace slipway
