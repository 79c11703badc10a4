#include "tools/console/console.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "platform/control_characters.h"

namespace weft {
namespace {

bool IsSet(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool TerminalIsDumb() {
  const char* const terminal = std::getenv("TERM");
  return terminal == nullptr || std::string_view(terminal) == "dumb";
}

}  // namespace

Console SystemConsole() {
  const bool animated = isatty(STDERR_FILENO) == 1 && !IsSet("NO_COLOR") && !TerminalIsDumb();
  return {&std::cout, &std::cerr, animated};
}

std::string Printable(std::string_view text) { return EscapeControlCharacters(text, "\n\t"); }

}  // namespace weft
