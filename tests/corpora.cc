#include "tests/corpora.h"

#include <cstdlib>

namespace weft::testing {

std::optional<std::string> CorporaFolder() {
  const char* const folder = std::getenv("WEFT_CORPORA");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return folder;
}

}  // namespace weft::testing
