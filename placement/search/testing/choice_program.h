// Questions with a few answers each, and tables that say what combinations of answers cost: which
// answers cost least together. Internal to placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_PROGRAM_H_
#define WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_PROGRAM_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/search/testing/choice_problem.h"

namespace weft {

struct ChoiceLimits {
  // Rows of all tables together that the integer program may have. Above it questions are answered
  // ahead: tables that share one are joined into one without it, which changes no answer.
  int64_t max_rows = 6000;
  // Rows of a joined table.
  int64_t max_joined_rows = 20000;
  // Nodes of branch and bound.
  int max_nodes = 500;
};

struct ChoiceAnswer {
  std::vector<int> answers;  // by question; empty: the limit of nodes came before the first
  double cost = std::numeric_limits<double>::infinity();
  double min_cost = 0;  // none takes less; `cost` when it is proven to be the best
  int64_t rows = 0;     // of all tables in the integer program
};

// Solved by branch and bound over linear programs (CBC) on one thread, without a clock: the same
// problem has the same answer. Per question one of its 0-1 variables is 1, and each row of a table
// has a variable that is 1 where all of its answers are given (with two questions: the product of
// their variables, made linear as Zheng et al. 2022, Alpa, do it with edges). ResourceExhausted,
// with numbers, when tables have too many rows however they are joined; InvalidArgument when no
// combination is allowed.
absl::StatusOr<ChoiceAnswer> SolveChoices(const ChoiceProblem& problem, const ChoiceLimits& limits);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_PROGRAM_H_
