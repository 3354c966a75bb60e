// Text between UTF-8, which is all of ours, and Windows' UTF-16.
#pragma once

#include <string>

namespace slipway {

// What is no UTF-8 becomes a replacement character.
std::wstring to_wide(const std::string& text);
std::string to_utf8(const wchar_t* text);

// What the system says of one of its error numbers, without the full stop.
std::string system_message(unsigned long error);

}  // namespace slipway
