// "Did you mean": the known name nearest to one that is not known.
#ifndef WEFT_PLATFORM_TEXT_NEAREST_NAME_H_
#define WEFT_PLATFORM_TEXT_NEAREST_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Levenshtein's distance: how many letters must be put in, left out or changed to make `b` of `a`.
// Takes a time that grows with the product of the lengths.
size_t EditDistance(std::string_view a, std::string_view b);

// ", did you mean 'x'?" for the candidate with the smallest edit distance (the first one on a tie),
// or
// "" when none is near: more than a third of the letters, and more than two, differ.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace weft

#endif  // WEFT_PLATFORM_TEXT_NEAREST_NAME_H_
