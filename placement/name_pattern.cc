#include "placement/name_pattern.h"

namespace weft {

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  // The usual two-finger walk: on a mismatch the last '*' takes one letter more.
  size_t p = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  for (size_t n = 0; n < name.size();) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace weft
