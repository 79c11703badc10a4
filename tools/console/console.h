// Console: where a command writes.
#ifndef WEFT_TOOLS_CONSOLE_CONSOLE_H_
#define WEFT_TOOLS_CONSOLE_CONSOLE_H_

#include <iosfwd>
#include <string>
#include <string_view>

namespace weft {

// Results go to `out`, everything for humans to `err`. Borrows both streams. Not thread-safe.
struct Console {
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  // Whether `err` shows lines that are written over (a progress bar).
  bool animated = false;
};

// Standard output and error. Not animated unless standard error is a terminal, and never with
// NO_COLOR or TERM=dumb.
Console SystemConsole();

// The text with control characters but line ends and tabs written as \xNN
// (platform/control_characters.h): names come from files and must not steer a terminal.
std::string Printable(std::string_view text);

}  // namespace weft

#endif  // WEFT_TOOLS_CONSOLE_CONSOLE_H_
