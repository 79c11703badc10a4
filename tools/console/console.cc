#include "tools/console/console.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_format.h"

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

std::string Printable(std::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      printable += absl::StrFormat("\\x%02x", byte);
    } else {
      printable += c;
    }
  }
  return printable;
}

}  // namespace weft
