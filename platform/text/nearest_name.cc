#include "platform/text/nearest_name.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// The distance of longer words would take long to compute, and says nothing.
constexpr size_t kLongestWord = 1024;

}  // namespace

// With one row of the matrix.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates) {
  size_t nearest = std::max<size_t>(2, word.size() / 3) + 1;
  const std::string* best = nullptr;
  if (word.size() > kLongestWord) return "";
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const size_t distance = EditDistance(word, candidate);
    if (distance < nearest && distance < candidate.size()) {
      nearest = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : absl::StrCat(", did you mean '", *best, "'?");
}

}  // namespace weft
