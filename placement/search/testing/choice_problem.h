// Questions with a few answers each, and what combinations of answers cost. Internal to
// placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_PROBLEM_H_
#define WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_PROBLEM_H_

#include <vector>

namespace weft {

// What some questions' answers cost together. Combinations without a row are not allowed.
struct ChoiceTable {
  std::vector<int> questions;             // each once
  std::vector<std::vector<int>> answers;  // by row, in the order of `questions`; no row twice
  std::vector<double> costs;              // by row
};

struct ChoiceProblem {
  std::vector<int> answers;  // by question: how many it has, 1 or more
  std::vector<ChoiceTable> tables;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_PROBLEM_H_
