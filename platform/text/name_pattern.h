// Names with wildcards, as plans use them for nodes and values.
#ifndef WEFT_PLATFORM_TEXT_NAME_PATTERN_H_
#define WEFT_PLATFORM_TEXT_NAME_PATTERN_H_

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace weft {

// True if `name` is `pattern`, in which '*' stands for any letters ('/' and '.' too, none as well)
// and
// '?' for one. "block0/*" matches all nodes below block0.
bool MatchesPattern(std::string_view pattern, std::string_view name);

// What the first '*' of the pattern stands for in a name that matches it, as short as can be, and
// of that the part before its first inner '/': "7" for "block*" and "block7/up/MatMul". Empty
// without '*'.
std::string TextOfFirstStar(std::string_view pattern, std::string_view name);
// A name for the nodes that match, which tells apart what the first '*' stands for: "block*" for
// "block*/up". Never empty.
std::string SegmentOfPattern(std::string_view pattern);

// What `entries` say about `name`: the entry of this very name, else that of the matching pattern
// with the most letters that are no wildcards (the first one on a tie); null when none matches.
template <typename T>
const std::pair<const std::string, T>* FindEntry(const std::map<std::string, T>& entries,
                                                 const std::string& name) {
  if (const auto it = entries.find(name); it != entries.end()) return &*it;
  const std::pair<const std::string, T>* best = nullptr;
  size_t max_letters = 0;
  for (const auto& entry : entries) {
    const std::string& pattern = entry.first;
    if (pattern.find_first_of("*?") == std::string::npos) continue;
    const size_t letters = pattern.size() - std::count(pattern.begin(), pattern.end(), '*') -
                           std::count(pattern.begin(), pattern.end(), '?');
    if ((best == nullptr || letters > max_letters) && MatchesPattern(pattern, name)) {
      best = &entry;
      max_letters = letters;
    }
  }
  return best;
}

}  // namespace weft

#endif  // WEFT_PLATFORM_TEXT_NAME_PATTERN_H_
