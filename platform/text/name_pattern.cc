#include "platform/text/name_pattern.h"

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

std::string TextOfFirstStar(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos || name.size() < star) return "";
  const std::string_view rest = pattern.substr(star + 1);
  size_t end = star;
  while (end < name.size() && !MatchesPattern(rest, name.substr(end))) ++end;
  const std::string_view text = name.substr(star, end - star);
  return std::string(text.substr(0, text.find('/', star == 0 ? 1 : 0)));
}

std::string SegmentOfPattern(std::string_view pattern) {
  const size_t star = pattern.find('*');
  return std::string(star == std::string_view::npos ? pattern : pattern.substr(0, star + 1));
}

}  // namespace weft
