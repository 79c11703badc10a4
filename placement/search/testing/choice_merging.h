// ChoiceMerging: makes a problem of choices smaller without changing its best answer. Internal to
// choice_program.
#ifndef WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_MERGING_H_
#define WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_MERGING_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "placement/search/testing/choice_problem.h"

namespace weft {

// A question is answered ahead by joining the tables that have it and keeping, for each combination
// of the others' answers, its best own (non-serial dynamic programming: Bertele and Brioschi,
// 1972).
class ChoiceMerging {
 public:
  explicit ChoiceMerging(ChoiceProblem problem);

  // Answers ahead what one table alone asks; then, while all rows are more than `max_rows`, the
  // question whose joined table would be largest over what it replaces least, up to
  // `max_joined_rows` in one.
  void Run(int64_t max_rows, int64_t max_joined_rows);
  // False when it has found that no combination is allowed.
  bool is_possible() const { return is_possible_; }
  int64_t rows() const { return rows_; }
  // Those with questions. What the others cost is base_cost().
  std::vector<const ChoiceTable*> tables() const;
  double base_cost() const { return base_cost_; }
  // Whether the question is still open.
  bool IsOpen(int question) const { return !tables_of_[question].empty(); }
  // Fills in what was answered ahead, in the order in which it follows from the rest.
  void Complete(std::vector<int>& answers) const;

 private:
  // Which answer is the best for each combination of `questions`.
  struct Merged {
    int question = 0;
    std::vector<int> questions;
    std::map<std::vector<int>, int> best;
  };
  // The most rows that a joined table may have.
  double JoinedRows(int question) const;
  double Growth(int question) const;
  void Merge(int question);
  void Add(ChoiceTable table);
  void Remove(int table);

  std::vector<int> answers_;
  std::vector<ChoiceTable> tables_;       // removed ones are empty
  std::vector<std::set<int>> tables_of_;  // by question
  std::vector<Merged> merged_;
  int64_t rows_ = 0;
  double base_cost_ = 0;
  bool is_possible_ = true;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TESTING_CHOICE_MERGING_H_
