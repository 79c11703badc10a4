#include "tools/flags/renamed_flags.h"

#include <map>

namespace weft {

std::string RenamedTo(const std::string& flag) {
  static const auto* const renamed =
      new std::map<std::string, std::string>{{"--ledger", "--run-history"}};
  const auto found = renamed->find(flag);
  return found == renamed->end() ? "" : found->second;
}

}  // namespace weft
