// Control characters in texts that come from others.
#ifndef WEFT_PLATFORM_CONTROL_CHARACTERS_H_
#define WEFT_PLATFORM_CONTROL_CHARACTERS_H_

#include <string>
#include <string_view>

namespace weft {

// The text with each byte of a control character written as \xNN, so that it cannot steer a
// terminal or forge a line of a log: those of ASCII (0x00 to 0x1f, 0x7f), the C1 controls, which
// some terminals obey as they do ESC (U+0080 to U+009f), and those that change the direction of
// what follows (U+202a to U+202e, U+2066 to U+2069). So is every byte that is no UTF-8. Characters
// of `kept` stay: "\n\t".
std::string EscapeControlCharacters(std::string_view text, std::string_view kept = "");

}  // namespace weft

#endif  // WEFT_PLATFORM_CONTROL_CHARACTERS_H_
